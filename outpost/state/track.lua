-- KEYS per reducer: state, dedupe set of the bucket
-- ARGV channel nonce now pending-cap bucket-cap spill-cap id bucket, per reducer: definition value
local nonce,id,b=ARGV[2],ARGV[7],ARGV[8]
local cap,maxb,maxo=tonumber(ARGV[4]),tonumber(ARGV[5]),tonumber(ARGV[6])
local count=#KEYS/2
if count<1 or count>64 or #ARGV~=8+2*count then return {'invalid','reducers'} end
if not ismark(nonce) then return {'invalid','nonce'} end
if not isid(id) then return {'invalid','id'} end
if not instant(b) then return {'invalid','bucket'} end
for r=1,count do
  if ARGV[7+2*r]=='' or #ARGV[7+2*r]>200 then return {'invalid','definition'} end
  if not canonical(ARGV[8+2*r],38) then return {'invalid','value'} end
end
local now=clock(ARGV[3])

-- merge puts the oldest bucket into the next one: it is then discarded later
-- than it could be, never earlier.
local function merge(p,key,list)
  table.sort(list,byvalue)
  local old,next=list[1],list[2]
  local function get(x) if x==b then return p.hot end return redis.call('HMGET',key,'n:'..x,'s:'..x,'l:'..x,'h:'..x) end
  local x,y=get(old),get(next)
  p.hot={i2s(tonumber(x[1])+tonumber(y[1])),dadd(x[2],y[2]),dmin(x[3],y[3]),dmax(x[4],y[4])}
  p.at=next
  if old~=b then p.del={'n:'..old,'s:'..old,'l:'..old,'h:'..old} end
  if next~=b and old~=b then return false end
  table.remove(list,1)
  return true
end

local function plan(r)
  local key,df,v=KEYS[2*r-1],ARGV[7+2*r],ARGV[8+2*r]
  local h=redis.call('HMGET',key,'ep','df','cu','np','p:'..id,'n:'..b,'s:'..b,'l:'..b,'h:'..b,'rv','tp')
  if h[1] and h[2]~=df then return nil,{'definition',tostring(r-1)} end
  local p={key=key,dedupe=KEYS[2*r],set={},del={},old=h[1],ep=h[1] or nonce,rv=h[10] or '0',tp=h[11] or ''}
  if h[5] then
    local ob,ov=entry(h[5])
    if ob~=b or ov~=v then return nil,{'conflict',tostring(r-1)} end
    p.status='duplicate' return p
  end
  -- The set belongs to the epoch that it names: after a reset it proves nothing.
  local d=redis.call('SMISMEMBER',p.dedupe,id,'!'..p.ep)
  p.marked=(d[2]==1)
  if d[1]==1 and p.marked then p.status='duplicate' return p end
  p.status='new'
  local set,size=p.set,0
  local function put(f,x) set[size+1]=f set[size+2]=x size=size+2 end
  if not h[1] then put('ep',p.ep) put('df',df) end
  local hot=(not h[3]) or tonumber(b)>=tonumber(h[3])
  local n,s,l,m,o='','','','',''
  local pending=tonumber(h[4] or '0')
  if pending>=cap then
    p.status='spilled'
    local on,os,ol,oh='0','0','',''
    local old=redis.call('HMGET',key,'o:'..b,'oi')
    if old[1] then on,os,ol,oh=spilled(old[1]) end
    if tonumber(on)>=maxo then return nil,{'overflow',tostring(r-1)} end
    o=i2s(tonumber(on)+1)..'|'..dadd(os,v)..'|'..dmin(ol,v)..'|'..dmax(oh,v)..'|'..i2s(now)
    local list=numbers(old[2])
    if not old[1] then
      list[#list+1]=b
      if #list>maxb then
        -- Into the older one, which counts no later than the newer one.
        table.sort(list,byvalue)
        local x,y=list[1],list[2]
        local an,as,al,ah,aw=spilled(x==b and o or redis.call('HGET',key,'o:'..x))
        local bn,bs,bl,bh,bw=spilled(y==b and o or redis.call('HGET',key,'o:'..y))
        local both=i2s(tonumber(an)+tonumber(bn))..'|'..dadd(as,bs)..'|'..dmin(al,bl)..'|'..dmax(ah,bh)..'|'..i2s(math.max(tonumber(aw),tonumber(bw)))
        put('o:'..x,both)
        if x~=b and y~=b then put('o:'..b,o) end
        if y~=b then p.drop='o:'..y end
        table.remove(list,2)
        p.reload=true
      else put('o:'..b,o) end
      put('oi',table.concat(list,','))
    else put('o:'..b,o) end
  else
    put('p:'..id,b..'|'..v..'|'..i2s(now)..'|p')
    put('np',i2s(pending+1))
  end
  if hot then
    n=i2s(tonumber(h[6] or '0')+1)
    s=dadd(h[7] or '0',v)
    l=dmin(h[8],v)
    m=dmax(h[9],v)
    p.hot={n,s,l,m}
    p.at=b
    if not h[6] then
      local list=numbers(redis.call('HGET',key,'bi') or '')
      list[#list+1]=b
      if #list>maxb then
        local mine=p.hot
        p.reload=true
        if not merge(p,key,list) then
          put('n:'..b,mine[1]) put('s:'..b,mine[2]) put('l:'..b,mine[3]) put('h:'..b,mine[4])
          table.remove(list,1)
        end
      end
      put('bi',table.concat(list,','))
    end
    put('n:'..p.at,p.hot[1]) put('s:'..p.at,p.hot[2]) put('l:'..p.at,p.hot[3]) put('h:'..p.at,p.hot[4])
  end
  p.next=i2s(tonumber(p.rv)+1)
  put('rv',p.next) put('tp',nonce)
  if p.reload then p.record=record('R',key,p.ep,p.next,p.tp,nonce)
  else
    local body=b..'|'..v..'|'..i2s(now)..'|'..((p.status=='new') and 'p' or 'o')..'|'..n..'|'..s..'|'..l..'|'..m
    p.record=record('T',key,p.ep,p.next,p.tp,nonce,id,body,o)
  end
  return p
end

local plans={}
for r=1,count do
  local p,refused=plan(r)
  if refused then return refused end
  plans[r]=p
end
local reply,news={'ok'},{}
for r=1,count do
  local p=plans[r]
  if p.status=='duplicate' then
    p.record=record('D',p.key,p.ep,p.rv,p.tp,p.tp)
  else
    redis.call('HSET',p.key,unpack(p.set))
    if #p.del>0 then redis.call('HDEL',p.key,unpack(p.del)) end
    if p.drop then redis.call('HDEL',p.key,p.drop) end
    redis.call('PEXPIRE',p.key,DAY)
    if p.status=='spilled' then
      if not p.marked then redis.call('DEL',p.dedupe) end
      redis.call('SADD',p.dedupe,id,'!'..p.ep)
      redis.call('PEXPIRE',p.dedupe,2*HOUR)
    end
    news[#news+1]=p.record
  end
  reply[#reply+1]=p.status
  reply[#reply+1]=p.record
end
if #news>0 then redis.call('PUBLISH',ARGV[1],pack(news)) end
return reply
