-- KEYS per reducer: state, window, questions, dedupe set per bucket
-- ARGV channel nonce now reducers buckets, the buckets, then ids
local nonce,count,width=ARGV[2],tonumber(ARGV[4]),tonumber(ARGV[5])
if not (count and width and count>=1 and count<=64 and #KEYS==count*(3+width)) then return {'invalid','reducers'} end
if not ismark(nonce) then return {'invalid','nonce'} end
if badids(6+width) then return {'invalid','ids'} end
local at,ids={},{}
for i=1,width do
  if not instant(ARGV[5+i]) then return {'invalid','bucket'} end
  at[ARGV[5+i]]=i
end
local named={}
for i=6+width,#ARGV do
  if not named[ARGV[i]] then named[ARGV[i]]=true ids[#ids+1]=ARGV[i] end
end
local asked={}
for i=1,#ids do asked[i]='p:'..ids[i] end
local now=clock(ARGV[3])

local function plan(r)
  local o=(r-1)*(3+width)
  local p={key=KEYS[o+1],window=KEYS[o+2],questions=KEYS[o+3],gone={},set={},add={},put={},marked={},changed={}}
  local st=redis.call('HMGET',p.key,'ep','cu','kx','aq','rv','tp','np')
  if not st[1] then return p end
  p.ep,p.tp=st[1],st[6] or ''
  local found=redis.call('HMGET',p.key,unpack(asked))
  local aq=i2s(tonumber(st[4] or '0')+1)
  local open=st[3] and tonumber(st[3])>=now
  for i=1,#ids do
    local e=found[i]
    if e then
      local b,v,t,s=entry(e)
      if (not st[2]) or tonumber(b)>=tonumber(st[2]) then
        p.gone[#p.gone+1]='p:'..ids[i]
        local d=at[b] and KEYS[o+3+at[b]]
        if d then
          if not p.add[d] then p.add[d]={'!'..p.ep} p.marked[d]=redis.call('SISMEMBER',d,'!'..p.ep)==1 end
          table.insert(p.add[d],ids[i])
        end
        if open then p.put[#p.put+1]=ids[i] p.put[#p.put+1]=b..'|'..v..'|'..aq..'|'..t end
        p.changed[#p.changed+1]='h'..ids[i]
      elseif s=='p' then
        p.set[#p.set+1]='p:'..ids[i] p.set[#p.set+1]=b..'|'..v..'|'..t..'|a'
        p.changed[#p.changed+1]='c'..ids[i]
      end
    end
  end
  if #p.changed==0 then return p end
  redis.call('HLEN',p.window) redis.call('HLEN',p.questions) -- of the right kind, before the first write
  -- Questions that ran out saw no acknowledgement from here on. They may not
  -- come alive when the clock is set back.
  p.close=st[3] and not open and #p.gone>0
  p.next=i2s(tonumber(st[5])+1)
  local set=p.set
  if #p.put>0 then set[#set+1]='aq' set[#set+1]=aq end
  set[#set+1]='np' set[#set+1]=i2s(tonumber(st[7])-#p.gone)
  set[#set+1]='rv' set[#set+1]=p.next
  set[#set+1]='tp' set[#set+1]=nonce
  return p
end

local plans,news={},{}
for r=1,count do plans[r]=plan(r) end
for r=1,count do
  local p=plans[r]
  if #p.changed>0 then
    redis.call('HSET',p.key,unpack(p.set))
    if #p.gone>0 then redis.call('HDEL',p.key,unpack(p.gone)) end
    for d,ids in pairs(p.add) do
      if not p.marked[d] then redis.call('DEL',d) end
      redis.call('SADD',d,unpack(ids))
      redis.call('PEXPIRE',d,2*HOUR)
    end
    if #p.put>0 then redis.call('HSET',p.window,unpack(p.put)) redis.call('PEXPIRE',p.window,DAY) end
    if p.close then redis.call('DEL',p.questions) redis.call('HDEL',p.key,'kx') end
    redis.call('PEXPIRE',p.key,DAY)
    news[#news+1]=record('A',p.key,p.ep,p.next,p.tp,nonce,pack(p.changed))
  end
end
if #news==0 then return {'noop'} end
redis.call('PUBLISH',ARGV[1],pack(news))
table.insert(news,1,'ok')
return news
