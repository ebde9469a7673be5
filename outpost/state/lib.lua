-- Outpost, layout v1, scripts 1. This part stands before every script.
-- A value is a whole number of 10^-12 as text, "-?(0|[1-9][0-9]*)": a Lua number
-- is a double and would round it. Times and buckets are below 2^53.
local WIDTH,HOUR,DAY,SAFE=300000000,3600000,86400000,4503599627370496
local function mag(s) if string.sub(s,1,1)=='-' then return true,string.sub(s,2) end return false,s end
local function mcmp(a,b) if #a~=#b then return (#a<#b) and -1 or 1 end if a==b then return 0 end return (a<b) and -1 or 1 end
local function trim(parts)
  local r=string.gsub(table.concat(parts),'^0+','')
  return (r=='') and '0' or r
end
-- Groups of 14 digits: the sum of two is below 2^53.
local function madd(a,b)
  local out,carry,i,j={},0,#a,#b
  while i>0 or j>0 do
    local x=(i>0) and tonumber(string.sub(a,math.max(1,i-13),i)) or 0
    local y=(j>0) and tonumber(string.sub(b,math.max(1,j-13),j)) or 0
    local t=x+y+carry
    if t>=1e14 then carry=1 t=t-1e14 else carry=0 end
    table.insert(out,1,string.format('%014.0f',t))
    i=i-14 j=j-14
  end
  if carry==1 then table.insert(out,1,'1') end
  return trim(out)
end
local function msub(a,b) -- a>=b
  local out,borrow,i,j={},0,#a,#b
  while i>0 do
    local x=tonumber(string.sub(a,math.max(1,i-13),i))
    local y=(j>0) and tonumber(string.sub(b,math.max(1,j-13),j)) or 0
    local t=x-y-borrow
    if t<0 then t=t+1e14 borrow=1 else borrow=0 end
    table.insert(out,1,string.format('%014.0f',t))
    i=i-14 j=j-14
  end
  return trim(out)
end
local function i2s(n) return string.format('%.0f',n) end
local function dadd(a,b)
  if #a<=17 and #b<=17 then -- in doubles, where they and their sum are exact
    local x,y=tonumber(a),tonumber(b)
    if x<SAFE and x>-SAFE and y<SAFE and y>-SAFE then return i2s(x+y+0) end
  end
  local an,am=mag(a) local bn,bm=mag(b)
  if an==bn and #am<=28 and #bm<=28 then -- two groups, without a loop
    local hi=(tonumber(string.sub(am,1,-15)) or 0)+(tonumber(string.sub(bm,1,-15)) or 0)
    local lo=tonumber(string.sub(am,-14))+tonumber(string.sub(bm,-14))
    if lo>=1e14 then hi=hi+1 lo=lo-1e14 end
    local r=(hi==0) and i2s(lo) or string.format('%.0f%014.0f',hi,lo)
    if an and r~='0' then r='-'..r end
    return r
  end
  if an==bn then local r=madd(am,bm) if an and r~='0' then r='-'..r end return r end
  local c=mcmp(am,bm)
  if c==0 then return '0' end
  local r,neg
  if c>0 then r=msub(am,bm) neg=an else r=msub(bm,am) neg=bn end
  if neg then r='-'..r end
  return r
end
local function dcmp(a,b)
  if #a<=15 and #b<=15 then
    local x,y=tonumber(a),tonumber(b)
    return (x<y) and -1 or ((x>y) and 1 or 0)
  end
  local an,am=mag(a) local bn,bm=mag(b)
  if an~=bn then return an and -1 or 1 end
  local c=mcmp(am,bm)
  return an and -c or c
end
local function dmin(a,b) if (not a) or a=='' then return b end if b=='' then return a end return (dcmp(a,b)<=0) and a or b end
local function dmax(a,b) if (not a) or a=='' then return b end if b=='' then return a end return (dcmp(a,b)>=0) and a or b end
-- What comes in is checked before the first write: a script that fails later
-- leaves what it wrote.
local function canonical(s,digits)
  if s=='0' then return true end
  local from,to=string.find(s,'^%-?[1-9]%d*$')
  return from and (string.byte(s)==45 and to-1 or to)<=digits
end
local function natural(s) return string.find(s,'^%d+$') and #s<=16 and canonical(s,16) and tonumber(s)<9007199254740992 end
local function instant(s) return natural(s) and tonumber(s)%WIDTH==0 end
local function isid(s) return #s>2 and #s<=160 end
local function ismark(s) return #s>=8 and #s<=64 and not string.find(s,'[^%w_-]') end
local function badids(from)
  if #ARGV<from or #ARGV-from>=1000 then return true end
  for i=from,#ARGV do if not isid(ARGV[i]) then return true end end
end
local function clock(arg)
  if arg~='' then return tonumber(arg) end
  local t=redis.call('TIME')
  return tonumber(t[1])*1000+math.floor(tonumber(t[2])/1000)
end
-- Length-prefixed fields: ids may hold any byte.
local function pack(t)
  local out,n={},0
  for i=1,#t do
    local f=t[i]
    out[n+1]=#f out[n+2]=':' out[n+3]=f
    n=n+3
  end
  return table.concat(out)
end
local function fields(s)
  local t,i={},1
  while i<=#s do
    local j=string.find(s,':',i,true)
    local n=tonumber(string.sub(s,i,j-1))
    t[#t+1]=string.sub(s,j+1,j+n)
    i=j+n+1
  end
  return t
end
-- A change: kind, key, and what makes the chain. No mark holds a '|'.
local function record(kind,key,ep,rv,prev,tip,...) return pack({kind,key,rv..'|'..ep..'|'..prev..'|'..tip,...}) end
local function numbers(s) local t={} for b in string.gmatch(s or '','%d+') do t[#t+1]=b end return t end
local function byvalue(a,b) return tonumber(a)<tonumber(b) end
local function entry(e) return string.match(e,'^(%d+)|(-?%d+)|(%d+)|([pa])$') end
local function spilled(o) return string.match(o,'^(%d+)|(-?%d+)|(-?%d+)|(-?%d+)|(%d+)$') end
