-- One claim of one node on the limits of one tenant: quota.Share in Lua. It
-- must decide the same; a test holds the two side by side.
--
-- KEYS[1]  the tenant's hash: "at", "n:<node>" and "l:<line>" fields
-- ARGV     node, epoch, sequence, period and slots' time in ms, then for each
--          line its name and fields numbers, in the order of the names below
--
-- Answers {nodes, then per line: tokens, per second, allocated, left, pool,
-- lowered, born}. All numbers are whole and below 2^53, where doubles are exact.

local fields = {'kind', 'limit', 'rate', 'overdraft', 'repay', 'window', 'pool', 'notch',
  'returned', 'extra', 'ask', 'head', 'demand', 'held', 'known_born', 'known', 'known_pool', 'known_lowered', 'weight'}
local forget_periods = 3
local remember_ms = 3600000
local keep_ms = 40 * 24 * 3600 * 1000 -- longer than a month, of which totals are kept
local max_missed = 1000

local key, node = KEYS[1], ARGV[1]
local epoch, sequence = tonumber(ARGV[2]), tonumber(ARGV[3])
local period, slots_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
now = math.max(now, tonumber(redis.call('HGET', key, 'at') or '0') or 0)

-- div is the whole quotient of numbers that are not negative. A division and a
-- floor could round a large quotient up.
local function div(a, b) return (a - a % b) / b end
local function part_of(whole, part, all) return div(whole * div(part * 1000000, all), 1000000) end
local function thousandths(whole, n) return div(whole, 1000) * n + div(whole % 1000 * n, 1000) end

-- read returns what a field holds, nil when that is nothing or nonsense.
local function read(name)
  local packed = redis.call('HGET', key, name)
  if not packed then return nil end
  local ok, value = pcall(cmsgpack.unpack, packed)
  if ok and type(value) == 'table' then return value end
  return nil
end

local function write(name, value) redis.call('HSET', key, name, cmsgpack.pack(value)) end

local me = read('n:' .. node)
if me and me.epoch == epoch and sequence <= me.sequence then return me.answer end

-- living counts the nodes that claimed lately, this one too.
local function living()
  local count = 1
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.sub(name, 1, 2) == 'n:' and name ~= 'n:' .. node then
      local other = read(name)
      if other and other.seen + slots_ms >= now then
        count = count + 1
      elseif not other or other.seen + remember_ms < now then
        redis.call('HDEL', key, name)
      end
    end
  end
  return count
end

local function refill(s, c)
  local passed = math.max(now - s.at, 0)
  if passed >= div((2 * c.limit + s.debt - math.min(s.level, 0)) * 1000, math.max(c.rate, 1)) + 1000 then
    s.level, s.debt, s.rest = c.limit, 0, 0
    return
  end
  local earned = passed * c.rate + s.rest
  local amount = div(earned, 1000)
  s.rest = earned % 1000
  local back = math.min(div(amount * c.repay, 1000), s.debt)
  s.debt = s.debt - back
  s.level = math.min(s.level + amount - back, c.limit)
end

local function lend_tokens(s, c, demand)
  local has = math.max(s.level, 0)
  local all = has + math.max(c.overdraft - s.debt, 0)
  local tokens = math.min(c.ask, all)
  if demand > 0 and div(demand * period, 1000) > has then
    tokens = math.min(tokens, math.max(part_of(all, c.demand, demand), math.min(c.head, all)))
  end
  local from_level = math.min(tokens, has)
  s.level = s.level - from_level
  s.debt = s.debt + tokens - from_level
  return tokens
end

local function rate_for(s, c, demand)
  local whole = c.rate
  if s.debt > 0 then whole = whole - div(whole * c.repay, 1000) end
  local part = math.min(part_of(whole, c.demand, demand), c.demand + div(c.demand, 4))
  if s.level * 1000 < -2 * c.rate * period then part = div(part, 2) end
  return part
end

local function lend_rate(s, c)
  if not s.known then s.level, s.at = div(c.limit, 2), now end
  refill(s, c)
  local h = s.holders[node]
  if h and h.till > now then s.level = s.level + div(h.rate * (h.till - now), 1000) end
  s.level = math.max(math.min(s.level + c.returned, c.limit) - c.extra, -c.limit)
  h = {till = now + period, seen = now, demand = c.demand, rate = 0, slots = 0}
  s.holders[node] = h
  local demand = 0
  for _, other in pairs(s.holders) do demand = demand + other.demand end
  local tokens = lend_tokens(s, c, demand)
  if demand > 0 then h.rate = rate_for(s, c, demand) end
  s.level = s.level - div(h.rate * period, 1000)
  return tokens, h.rate, 0, math.max(s.level, 0), 0, 0, 0
end

local function base(s, c)
  if s.lowered == 1 then return thousandths(c.limit, c.notch) end
  return c.limit
end

local function turn(s, c)
  if not s.known then
    s.born, s.window, s.morning, s.lowered = now, c.window, c.pool, c.known_lowered
    if c.known_born ~= 0 then s.morning = c.known_pool + math.max(c.known - base(s, c), 0) end
    return
  end
  for _ = 1, math.min(c.window - s.window, max_missed) do
    local total = base(s, c)
    local pool = math.max(s.morning - math.max(s.used - total, 0), 0)
    s.morning = math.min(pool + thousandths(math.max(total - s.used, 0), c.repay), c.pool)
    s.lowered = s.morning < c.pool and 1 or 0
    s.used, s.merged = 0, 0
  end
  s.window = math.max(s.window, c.window)
  s.morning = math.min(s.morning, c.pool)
end

local function lend_total(s, c, nodes)
  turn(s, c)
  if c.window < s.window then return 0, 0, 0, 0, 0, 0, 0 end
  s.holders[node] = {till = 0, seen = now, demand = 0, rate = 0, slots = 0}
  if c.known_born ~= s.born and c.known > s.merged then
    s.used = s.used + c.known - s.merged
    s.merged = c.known
  end
  s.used = math.max(s.used - c.returned, 0) + c.extra
  local total = base(s, c)
  local left = math.max(total + s.morning - s.used, 0)
  local tokens = math.min(c.ask, left, math.max(div(left, 4 * math.max(nodes, 1)), c.head))
  s.used = s.used + tokens
  return tokens, 0, s.used, left - tokens, math.max(s.morning - math.max(s.used - total, 0), 0), s.lowered, s.born
end

local function lend_slots(s, c)
  local others, wanted = 0, 0
  for name, h in pairs(s.holders) do
    if name ~= node and h.till > now then
      others = others + h.slots
      wanted = wanted + h.demand
    end
  end
  local tokens = math.min(c.ask, math.max(c.limit - others, 0))
  local all = wanted + c.ask
  if all > c.limit then tokens = math.min(tokens, math.max(part_of(c.limit, c.ask, all), 1)) end
  s.holders[node] = {till = now + slots_ms, seen = now, demand = c.ask, rate = 0, slots = math.max(tokens, c.held)}
  return tokens, 0, 0, math.max(c.limit - others - tokens, 0), 0, 0, 0
end

-- rounded shares slots out to holders who all want more than their part.
local function rounded(slots, names, wants, weights)
  local left, part = slots, 0
  for _, name in ipairs(names) do left = left - div(slots * wants[name].weight, weights) end
  for i, name in ipairs(names) do
    if name == node then
      part = div(slots * wants[name].weight, weights)
      if i <= left then part = part + 1 end
    end
  end
  return part
end

local function fair_slots(slots, wants)
  local names = {}
  for name in pairs(wants) do names[#names + 1] = name end
  table.sort(names)
  local spare = slots
  for _, h in pairs(wants) do spare = spare - h.demand end
  if spare >= 0 then
    local part = wants[node].demand + div(spare, #names)
    for i, name in ipairs(names) do
      if name == node and i <= spare % #names then part = part + 1 end
    end
    return part
  end
  if slots >= #names then
    if wants[node].demand <= 1 then return wants[node].demand end
    local more = {}
    for _, name in ipairs(names) do
      if wants[name].demand <= 1 then slots = slots - wants[name].demand else more[#more + 1] = name end
    end
    names = more
  end
  while true do
    local weights = 0
    for _, name in ipairs(names) do weights = weights + wants[name].weight end
    local rest, taken, mine = {}, 0, true
    for _, name in ipairs(names) do
      if wants[name].demand * weights <= slots * wants[name].weight then
        taken = taken + wants[name].demand
        if name == node then mine = false end
      else
        rest[#rest + 1] = name
      end
    end
    if #rest == #names then return rounded(slots, names, wants, weights) end
    if not mine then return wants[node].demand end
    slots, names = slots - taken, rest
  end
end

local function lend_node(s, c)
  local me = {till = now + slots_ms, seen = now, demand = c.ask, rate = 0, weight = math.max(c.weight, 1)}
  local others, wants = 0, {[node] = me}
  for name, h in pairs(s.holders) do
    if name ~= node and h.till > now then
      others = others + h.slots
      wants[name] = h
    end
  end
  local tokens = math.min(fair_slots(c.limit, wants), math.max(c.limit - others, 0))
  me.slots = math.max(tokens, c.held)
  s.holders[node] = me
  return tokens, 0, 0, math.max(c.limit - others - tokens, 0), 0, 0, 0
end

local nodes = living()
local answer = {nodes}
local at = 6
while at <= #ARGV do
  local name, c = 'l:' .. ARGV[at], {}
  for i, field in ipairs(fields) do c[field] = tonumber(ARGV[at + i]) end
  at = at + 1 + #fields
  local s = read(name) or {known = false, born = 0, at = 0, level = 0, rest = 0, debt = 0,
    window = 0, used = 0, merged = 0, morning = 0, lowered = 0, holders = {}}
  for other, h in pairs(s.holders) do
    if math.max(h.till, h.seen + forget_periods * period) < now then s.holders[other] = nil end
  end
  local grant
  if c.kind == 0 then
    grant = {lend_rate(s, c)}
  elseif c.kind == 1 then
    grant = {lend_total(s, c, nodes)}
  elseif c.kind == 3 then
    grant = {lend_node(s, c)}
  else
    grant = {lend_slots(s, c)}
  end
  s.known, s.at = true, now
  write(name, s)
  for _, number in ipairs(grant) do answer[#answer + 1] = number end
end
write('n:' .. node, {epoch = epoch, sequence = sequence, seen = now, answer = answer})
redis.call('HSET', key, 'at', string.format('%.0f', now))
redis.call('PEXPIRE', key, keep_ms)
return answer
