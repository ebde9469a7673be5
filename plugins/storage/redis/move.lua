-- Sets counters and steps of history, or adds to them, all or nothing: what can
-- fail does so before the first write. With a receipt it happens once.
--
-- KEYS: layout, order and values of the counters, order and values of the steps,
--       and the receipt if there is one.
-- ARGV: "set" or "add"; for how many milliseconds a receipt is kept; its owner;
--       how many counters follow; for each counter its member, the end of its
--       period and an amount; for each step its member and an amount.
-- Answer: whether it was applied now (1 or 0), and for each counter its end and
--         its value as they are afterwards.
--
-- An amount is a whole number of 10^-12 in digits. Numbers of Lua are floats, so
-- digits are added in groups of seven, least first, which a float holds exactly.
local GROUP, BASE = 7, 10000000

local function parse(text)
  local negative = string.sub(text, 1, 1) == '-'
  local groups, last = {}, #text
  local first = negative and 2 or 1
  while last >= first do
    groups[#groups + 1] = tonumber(string.sub(text, math.max(first, last - GROUP + 1), last))
    last = last - GROUP
  end
  return negative, groups
end

local function compare(a, b)
  for i = math.max(#a, #b), 1, -1 do
    local x, y = a[i] or 0, b[i] or 0
    if x ~= y then return x < y and -1 or 1 end
  end
  return 0
end

-- combine is a + sign * b of magnitudes; with sign -1, a is not less than b.
local function combine(a, b, sign)
  local out, carry = {}, 0
  for i = 1, math.max(#a, #b) do
    local sum = (a[i] or 0) + sign * (b[i] or 0) + carry
    carry = 0
    if sum >= BASE then sum, carry = sum - BASE, 1 elseif sum < 0 then sum, carry = sum + BASE, -1 end
    out[i] = sum
  end
  if carry > 0 then out[#out + 1] = carry end
  return out
end

local function format(negative, groups)
  local n = #groups
  while n > 0 and groups[n] == 0 do n = n - 1 end
  if n == 0 then return '0' end
  local parts = {string.format('%d', groups[n])}
  for i = n - 1, 1, -1 do parts[#parts + 1] = string.format('%07d', groups[i]) end
  return (negative and '-' or '') .. table.concat(parts)
end

local function add(x, y)
  local xn, xg = parse(x)
  local yn, yg = parse(y)
  if xn == yn then return format(xn, combine(xg, yg, 1)) end
  local c = compare(xg, yg)
  if c == 0 then return '0' end
  if c > 0 then return format(xn, combine(xg, yg, -1)) end
  return format(yn, combine(yg, xg, -1))
end

if redis.call('GET', KEYS[1]) ~= '1' then return redis.error_reply('LAYOUT') end

local mode, receipt = ARGV[1], KEYS[6]
local writes = not (receipt and redis.call('EXISTS', receipt) == 1)
local counters, at = {}, 5
local ends, values, points = {}, {}, {}

local function split(stored) -- "end value"
  local space = string.find(stored, ' ', 1, true)
  return string.sub(stored, 1, space - 1), string.sub(stored, space + 1)
end

for i = 1, tonumber(ARGV[4]) do
  local member, to, amount = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  counters[i] = member
  if not values[member] then
    local stored = redis.call('HGET', KEYS[3], member)
    if stored then ends[member], values[member] = split(stored) end
  end
  if writes then
    ends[member] = to
    values[member] = mode == 'add' and add(values[member] or '0', amount) or amount
  end
end
while at <= #ARGV do
  local member, amount = ARGV[at], ARGV[at + 1]
  at = at + 2
  if mode == 'add' then amount = add(points[member] or redis.call('HGET', KEYS[5], member) or '0', amount) end
  points[member] = amount
end

if writes then
  if receipt then redis.call('SET', receipt, ARGV[3], 'PX', ARGV[2]) end
  for member, value in pairs(values) do
    redis.call('ZADD', KEYS[2], 0, member)
    redis.call('HSET', KEYS[3], member, ends[member] .. ' ' .. value)
  end
  for member, amount in pairs(points) do
    redis.call('ZADD', KEYS[4], 0, member)
    redis.call('HSET', KEYS[5], member, amount)
  end
end

local answer = {writes and 1 or 0}
for _, member in ipairs(counters) do
  answer[#answer + 1] = ends[member] or ''
  answer[#answer + 1] = values[member] or '0'
end
return answer
