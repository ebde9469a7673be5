-- KEYS state window questions | ARGV channel nonce now epoch
-- The dedupe sets name their epoch and need no removal.
local key,nonce=KEYS[1],ARGV[2]
if not ismark(nonce) then return {'invalid','nonce'} end
local st=redis.call('HMGET',key,'ep','rv','tp')
if not st[1] then return {'absent'} end
if st[1]~=ARGV[4] then return {'moved'} end
redis.call('UNLINK',key,KEYS[2],KEYS[3])
redis.call('PUBLISH',ARGV[1],pack({record('X',key,st[1],st[2],st[3],nonce)}))
return {'ok'}
