-- KEYS state per reducer | ARGV channel nonce now ids
-- Dropped: no longer pending, hot or cold; a hot bucket keeps its whole value.
local nonce=ARGV[2]
if #KEYS<1 or #KEYS>64 then return {'invalid','reducers'} end
if not ismark(nonce) then return {'invalid','nonce'} end
if badids(4) then return {'invalid','ids'} end
local news={}
for r=1,#KEYS do
  local key=KEYS[r]
  local st=redis.call('HMGET',key,'ep','rv','tp','np')
  local gone,ids,named={},{},{}
  if st[1] then
    for i=4,#ARGV do
      if not named[ARGV[i]] and redis.call('HEXISTS',key,'p:'..ARGV[i])==1 then
        named[ARGV[i]]=true
        gone[#gone+1]='p:'..ARGV[i] ids[#ids+1]=ARGV[i]
      end
    end
  end
  if #gone>0 then
    local next=i2s(tonumber(st[2])+1)
    redis.call('HSET',key,'np',i2s(tonumber(st[4])-#gone),'rv',next,'tp',nonce)
    redis.call('HDEL',key,unpack(gone))
    redis.call('PEXPIRE',key,DAY)
    news[#news+1]=record('C',key,st[1],next,st[3],nonce,pack(ids))
  end
end
if #news==0 then return {'noop'} end
redis.call('PUBLISH',ARGV[1],pack(news))
table.insert(news,1,'ok')
return news
