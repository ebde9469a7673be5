-- KEYS state | ARGV channel nonce now version ids
-- Further confirmed ids of an applied answer. Before apply they would be missing.
local key,nonce=KEYS[1],ARGV[2]
if not ismark(nonce) then return {'invalid','nonce'} end
if not natural(ARGV[4]) then return {'invalid','version'} end
if badids(5) then return {'invalid','ids'} end
local st=redis.call('HMGET',key,'ep','rv','tp','np','sv','cu')
if not st[1] then return {'absent'} end
if not st[5] or tonumber(st[5])<tonumber(ARGV[4]) then return {'early'} end
local gone,ids,named={},{},{}
for i=5,#ARGV do
  local id=ARGV[i]
  local e=not named[id] and redis.call('HGET',key,'p:'..id)
  if e and tonumber((entry(e)))<tonumber(st[6]) then
    named[id]=true
    gone[#gone+1]='p:'..id ids[#ids+1]=id
  end
end
if #gone==0 then return {'noop'} end
local next=i2s(tonumber(st[2])+1)
redis.call('HSET',key,'np',i2s(tonumber(st[4])-#gone),'rv',next,'tp',nonce)
redis.call('HDEL',key,unpack(gone))
redis.call('PEXPIRE',key,DAY)
local change=record('C',key,st[1],next,st[3],nonce,pack(ids))
redis.call('PUBLISH',ARGV[1],pack({change}))
return {'ok',change}
