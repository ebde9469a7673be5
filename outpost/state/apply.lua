-- KEYS state window questions
-- ARGV channel nonce now token version cold-until n s l h window-start credits, per credit: meter amount, then confirmed ids
local key,nonce,token,version,cu=KEYS[1],ARGV[2],ARGV[4],ARGV[5],ARGV[6]
local credits=tonumber(ARGV[12])
if not ismark(nonce) then return {'invalid','nonce'} end
if not ismark(token) then return {'invalid','token'} end
if not natural(version) then return {'invalid','version'} end
if not instant(cu) then return {'invalid','cold_until'} end
if not canonical(ARGV[7],18) then return {'invalid','count'} end
if not canonical(ARGV[8],60) then return {'invalid','sum'} end
for i=9,10 do if ARGV[i]~='' and not canonical(ARGV[i],60) then return {'invalid','extremes'} end end
if ARGV[11]~='' and not natural(ARGV[11]) then return {'invalid','window_start'} end
if not (credits and credits>=0 and credits<=1000 and #ARGV>=12+2*credits) then return {'invalid','credits'} end
for i=1,credits do
  if ARGV[11+2*i]=='' or #ARGV[11+2*i]>200 or not canonical(ARGV[12+2*i],60) then return {'invalid','credits'} end
end
local first=13+2*credits
if #ARGV>=first and badids(first) then return {'invalid','ids'} end
local now=clock(ARGV[3])

local k=redis.call('HGET',KEYS[3],token)
if not k then return {'stale_ask'} end
local kaq,kex,asked,kep=string.match(k,'^(%d+)|(%d+)|(%d+)|(.+)$')
local st=redis.call('HMGET',key,'ep','sv','cu','bi','np','oi','rv','tp','sn','ss','sl','sh','cl')
local function refuse(...) redis.call('HDEL',KEYS[3],token) return {...} end
if tonumber(kex)<now then return refuse('stale_ask') end
if st[1]~=kep then return refuse('stale_ask') end
if st[2] and tonumber(version)<=tonumber(st[2]) then return refuse('old') end
if st[3] and tonumber(cu)<tonumber(st[3]) then return refuse('regress') end
local cold=tonumber(cu)

local del,set,conf,settled,back={},{},{},0,0
for i=first,#ARGV do
  local id=ARGV[i]
  if not conf[id] then
    conf[id]=true
    local e=redis.call('HGET',key,'p:'..id)
    if e and tonumber((entry(e)))<cold then del[#del+1]='p:'..id settled=settled+1 end
  end
end
-- What was acknowledged after the question may be missing from the answer.
local w,leave=redis.call('HGETALL',KEYS[2]),{}
for i=1,#w,2 do
  local b,v,a,t=string.match(w[i+1],'^(%d+)|(-?%d+)|(%d+)|(%d+)$')
  if tonumber(b)<cold then
    leave[#leave+1]=w[i]
    if tonumber(a)>tonumber(kaq) and not conf[w[i]] and redis.call('HEXISTS',key,'p:'..w[i])==0 then
      set[#set+1]='p:'..w[i] set[#set+1]=b..'|'..v..'|'..t..'|a' back=back+1
    end
  end
end
local keep={}
for _,b in ipairs(numbers(st[4])) do
  if tonumber(b)<cold then
    for _,f in ipairs({'n:','s:','l:','h:'}) do del[#del+1]=f..b end
  else keep[#keep+1]=b end
end
-- What was spilled has no ids. It counts until a question that was asked an hour
-- after the last of it: what was delivered within the hour is in that answer.
local over={}
for _,b in ipairs(numbers(st[6])) do
  local _,_,_,_,last=spilled(redis.call('HGET',key,'o:'..b))
  if tonumber(b)<cold and tonumber(last)+HOUR<=tonumber(asked) then del[#del+1]='o:'..b else over[#over+1]=b end
end
for _,m in ipairs(fields(st[13] or '')) do del[#del+1]='cr:'..m end
local names={}
for i=1,credits do names[i]=ARGV[11+2*i] end
local next=i2s(tonumber(st[7])+1)

redis.call('HDEL',KEYS[3],token)
for i=1,#del,1000 do redis.call('HDEL',key,unpack(del,i,math.min(#del,i+999))) end
for i=1,#leave,1000 do redis.call('HDEL',KEYS[2],unpack(leave,i,math.min(#leave,i+999))) end
for i=1,#set,1000 do redis.call('HSET',key,unpack(set,i,math.min(#set,i+999))) end
for i=1,credits do redis.call('HSET',key,'cr:'..names[i],ARGV[12+2*i]) end
redis.call('HSET',key,'cu',cu,'sv',version,'sn',ARGV[7],'ss',ARGV[8],'sl',ARGV[9],'sh',ARGV[10],'ws',ARGV[11],'cl',pack(names),
  'np',i2s(tonumber(st[5] or '0')-settled+back),'bi',table.concat(keep,','),'oi',table.concat(over,','),'sa',i2s(now),'rv',next,'tp',nonce)
redis.call('PEXPIRE',key,DAY)
local change=record('S',key,st[1],next,st[8] or '',nonce)
redis.call('PUBLISH',ARGV[1],pack({change}))
return {'ok',change,i2s(settled),i2s(back),st[9] or '0',st[10] or '0',st[11] or '',st[12] or '',st[3] or ''}
