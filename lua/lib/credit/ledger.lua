-- The coordinator's ledger: what each partition uses of each subscriber's credit. `subid number` -> `held version grant amount shut
-- turn`: the locks there by the report of that version, the last grant and how much of it no report has covered yet, 1 if the partition
-- does not know the subscriber, and its turn before that grant. `* number` -> the sum of grants on their way
-- there. `grants_underway` has the pairs with a grant on its way, by when it was last sent. Locks come only from grants, so the ledger
-- never counts less than is used.
local ledger = {}

local function name(subid, number)
  return subid .. ' ' .. number
end

function ledger.get(subid, number)
  local line = redis.call('HGET', key.ledger, name(subid, number))
  if not line then return nil end
  local held, version, grant, amount, shut, turn = string.match(line, '^(%d+) (%d+) (%d+) (%d+) ([01]) (%d+)$')
  return {held = tonumber(held), version = tonumber(version), grant = grant, amount = tonumber(amount), shut = shut == '1',
    turn = turn}
end

-- Returns how much is on its way to a partition.
function ledger.underway(number)
  return tonumber(redis.call('HGET', key.ledger, name('*', number)) or 0)
end

-- Writes an entry. Only here `usage` changes, by the same amount.
local function put(subid, number, before, entry)
  local change = entry.held + entry.amount - (before and before.held + before.amount or 0)
  if entry.held == 0 and entry.amount == 0 and not entry.shut then
    redis.call('HDEL', key.ledger, name(subid, number))
  else
    redis.call('HSET', key.ledger, name(subid, number),
      string.format('%d %d %s %d %d %s', entry.held, entry.version, entry.grant, entry.amount, entry.shut and 1 or 0,
        entry.turn or '0'))
  end
  local sent = entry.amount - (before and before.amount or 0)
  if sent ~= 0 and redis.call('HINCRBY', key.ledger, name('*', number), sent) <= 0 then
    redis.call('HDEL', key.ledger, name('*', number))
  end
  if entry.amount == 0 then redis.call('ZREM', key.grants_underway, name(subid, number)) end
  if change ~= 0 then
    local known = usage.read(subid)
    change = math.max(0, known.used + change) - known.used
    known.used = known.used + change
    usage.write(subid, known)
  end
end

-- Returns a subscriber's turn, unless it has been granted something since.
local function restore(subid, entry)
  for _, where in ipairs({key.ready_subscribers, key.idle_subscribers}) do
    local served = redis.call('ZSCORE', where, subid)
    if served and tonumber(served) == tonumber(entry.grant) then redis.call('ZADD', where, entry.turn, subid) end
  end
end

-- A subscriber that could not use a grant at all gets its turn back.
local function give_back(subid, before, unused)
  if before and before.amount > 0 and unused >= before.amount then restore(subid, before) end
end

-- Returns how much was not handed out: what the partition says, or where it could not take the last grant, or a registration has made that
-- void, all of the grant that is not locked there now.
local function unused_of(before, told)
  if told.unused > 0 or not before or before.amount == 0 or not (told.shut or told.full) then return told.unused end
  return math.max(0, before.amount - math.max(0, told.held - before.held))
end

-- Books a partition's report: what a subscriber holds there, and the last grant that it has taken. An older report than the last changes
-- nothing. Without an entry only a report that the coordinator has asked for (`full`) counts. Any other tells of locks that were reported
-- as ended before.
function ledger.report(number, subid, told)
  local before = ledger.get(subid, number)
  if not before and not told.full then return end
  if before and told.version <= before.version then return end
  local entry = before and {grant = before.grant, amount = before.amount} or {grant = '0', amount = 0}
  -- The coordinator counts the locks of its own partition itself.
  entry.held, entry.version, entry.shut = number == arg.number and 0 or told.held, told.version, told.shut
  if told.last >= tonumber(entry.grant) then
    give_back(subid, before, unused_of(before, told))
    entry.amount = 0
  end
  put(subid, number, before, entry)
end

-- Grants to the coordinator's own partition are booked by the script that takes them.
function ledger.take_own_grant(subid, last, unused)
  local before = ledger.get(subid, arg.number)
  if not before or before.amount == 0 or last < tonumber(before.grant) then return end
  give_back(subid, before, math.min(unused, before.amount))
  put(subid, arg.number, before, {held = 0, version = before.version, grant = before.grant, amount = 0, shut = before.shut})
end

function ledger.grant(subid, number, grant, amount, turn)
  local before = ledger.get(subid, number)
  put(subid, number, before, {held = before and before.held or 0, version = before and before.version or 0, grant = grant,
    amount = amount, shut = false, turn = turn})
  redis.call('ZADD', key.grants_underway, call.partition_now, name(subid, number))
end

-- A deleted partition uses nothing.
function ledger.drop(number, subid)
  local before = ledger.get(subid, number)
  if before then put(subid, number, before, {held = 0, version = 0, grant = '0', amount = 0, shut = false}) end
end
