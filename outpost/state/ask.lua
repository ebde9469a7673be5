-- KEYS state window questions | ARGV channel nonce now token definition ttl
-- Opens a question, and the state if there is none, so that a snapshot has a place.
local key,nonce,token,df,ttl=KEYS[1],ARGV[2],ARGV[4],ARGV[5],tonumber(ARGV[6])
if not ismark(nonce) then return {'invalid','nonce'} end
if not ismark(token) then return {'invalid','token'} end
if df=='' or #df>200 then return {'invalid','definition'} end
local now=clock(ARGV[3])
local h=redis.call('HMGET',key,'ep','df','aq','cu','sv','kx','rv','tp')
if h[1] and h[2]~=df then return {'definition','0'} end
redis.call('HLEN',KEYS[2])
local ep,created=h[1],'0'
local toks=redis.call('HGETALL',KEYS[3])
local dead,live={},0
for i=1,#toks,2 do
  local ex,te=string.match(toks[i+1],'^%d+|(%d+)|%d+|(.+)$')
  if ex and tonumber(ex)>=now and te==ep then live=live+1 else dead[#dead+1]=toks[i] end
end
if live>=256 then return {'busy'} end
local news
if not ep then
  ep,created=nonce,'1'
  redis.call('HSET',key,'ep',ep,'df',df,'rv','1','tp',nonce,'np','0')
  redis.call('PEXPIRE',key,DAY)
  redis.call('PUBLISH',ARGV[1],pack({record('N',key,ep,'1','',nonce)}))
end
for i=1,#dead do redis.call('HDEL',KEYS[3],dead[i]) end
if live==0 then redis.call('DEL',KEYS[2]) end -- no open question needs the old window
local exp=now+ttl
redis.call('HSET',KEYS[3],token,(h[3] or '0')..'|'..i2s(exp)..'|'..i2s(now)..'|'..ep)
redis.call('PEXPIRE',KEYS[3],ttl*4)
if not h[6] or tonumber(h[6])<exp then redis.call('HSET',key,'kx',i2s(exp)) end
return {'ok',created,ep,h[4] or '',h[5] or ''}
