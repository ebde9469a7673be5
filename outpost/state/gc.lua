-- KEYS state | ARGV channel nonce now cursor count
-- Removes what is undelivered for more than an hour. What was delivered waits
-- for the snapshot that counts it, whatever its age.
local key,nonce=KEYS[1],ARGV[2]
if not ismark(nonce) then return {'invalid','nonce'} end
if not string.find(ARGV[4],'^%d+$') or not natural(ARGV[5]) then return {'invalid','cursor'} end
local now=clock(ARGV[3])
local st=redis.call('HMGET',key,'ep','rv','tp','np')
if not st[1] then return {'absent'} end
local page=redis.call('HSCAN',key,ARGV[4],'MATCH','p:*','COUNT',ARGV[5])
local gone,ids,named={},{},{}
for i=1,#page[2],2 do
  local f=page[2][i]
  local _,_,t,s=entry(page[2][i+1])
  if s=='p' and tonumber(t)+HOUR<now and not named[f] then
    named[f]=true
    gone[#gone+1]=f ids[#ids+1]=string.sub(f,3)
  end
end
if #gone==0 then return {'ok',page[1],'0',''} end
local next=i2s(tonumber(st[2])+1)
redis.call('HSET',key,'np',i2s(tonumber(st[4])-#gone),'rv',next,'tp',nonce)
for i=1,#gone,1000 do redis.call('HDEL',key,unpack(gone,i,math.min(#gone,i+999))) end
local change=record('C',key,st[1],next,st[3],nonce,pack(ids))
redis.call('PUBLISH',ARGV[1],pack({change}))
return {'ok',page[1],i2s(#gone),change}
