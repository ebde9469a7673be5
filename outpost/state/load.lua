-- KEYS state | ARGV now
return {i2s(clock(ARGV[1])),redis.call('HGETALL',KEYS[1])}
