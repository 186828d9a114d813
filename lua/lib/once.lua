-- Names that take effect once: item ids where the node ignores repeats (X1), and the name that a row may bring for itself.
-- When that is the item's own id (a dead letter's), the item's presence counts as well.
-- NEEDS: seen
--- @include partition writes
local once = {remembered = {}}

function once.ignores(row)
  return row.item ~= '' and (arg.dedupe == 'ignore' or row.once == row.item)
end

function once.seen(name)
  if name == '' then return false end
  if once.remembered[name] then return true end
  local until_ms = redis.call('ZSCORE', key.seen, name)
  return until_ms and tonumber(until_ms) > partition.now
end

local function keep(name, ms)
  once.remembered[name] = true
  writes.add('ZADD', key.seen, partition.now + tonumber(ms), name)
  -- Two forgotten for each remembered: the window never grows past what is inside it.
  local old = redis.call('ZRANGEBYSCORE', key.seen, '-inf', partition.now, 'LIMIT', 0, 2)
  if #old > 0 then redis.call('ZREM', key.seen, unpack(old)) end
end

function once.remember(row)
  if row.once ~= '' then keep(row.once, arg.once_ms) end
  if row.once ~= row.item and once.ignores(row) then keep(row.item, arg.dedupe_ms) end
end
