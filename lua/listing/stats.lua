#!lua flags=no-writes
-- Count what a partition holds, and tell the age of the oldest item that may go out, or at most the age of one before it. A queue of
-- several partitions is worked by owners: the last count is 1 if this one has none.
-- ARGV: now revision
-- RETURNS: ok(waiting eligible delayed in_flight dying oldest_ms subscribers credit_free kept kept_bytes published finished removed
--   attempts dependent partitions_unowned) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local LOOK = 100
local in_flight, dying = redis.call('HLEN', key.inflight), redis.call('HLEN', key.outbox_items)
local delayed, waits = redis.call('ZCARD', key.delayed), dependents.count()
local stored = redis.call('XLEN', key.log) - redis.call('HLEN', key.replaced) - redis.call('HLEN', key.successors)
  - call.partition_kept
local waiting = math.max(0, stored - in_flight - dying)
local eligible = math.max(0, waiting - delayed - waits - redis.call('ZCARD', key.group_blocked))

-- The oldest item that may go out. Each index tells its first one, of each priority, and how many it has.
local oldest, indexed = nil, redis.call('ZCARD', key.ready)
local function meet(position)
  if position and not (oldest and positions.after(position, oldest)) then oldest = position end
end
meet(redis.call('ZRANGE', key.ready, 0, 0)[1])
-- Items that have a turn come before all others there.
if call.partition_before.fair_at then meet(redis.call('ZRANGEBYSCORE', key.ready, 0, '+inf', 'LIMIT', 0, 1)[1]) end
if call.partition_before.selects then
  indexed = indexed + skipped_items.count()
  local first, last = scheduling.USUAL, scheduling.USUAL
  if call.partition_before.hinted then first, last = 0, scheduling.LAST end
  for rank = first, last do meet(skipped_items.first(rank)) end
end
if call.partition_before.hinted then
  indexed = indexed + redis.call('ZCOUNT', key.by_priority, 0, scheduling.LAST)
  for rank = 0, scheduling.LAST do
    local padded = redis.call('ZRANGEBYSCORE', key.by_priority, rank, rank, 'LIMIT', 0, 1)[1]
    meet(padded and scheduling.unpad(padded))
  end
end

-- Returns those of the next entries of the log, or of the last ones with `back`, that may go out, the last entry read, and whether these
-- are all. What the cursor passes over has an index of its own.
local function find(count, back)
  local entries, ended = log_entries.range('(' .. call.partition_cursor, '+', count, back)
  local found = {}
  for _, entry in ipairs(entries) do
    local passed = entry.at or scheduling.of(entry).beside or rare_keys.any() and redis.call('ZSCORE', key.delayed, entry.log_id)
    if not passed then found[#found + 1] = entry.log_id end
  end
  return found, entries[#entries] and entries[#entries].log_id, ended
end

-- Returns the first item of the log that may go out. Reads payloads, so many only if there is one behind those that the cursor passes over.
-- If these are very many, all such items may be among the last entries; else it is younger than the last entry read.
local function first_in_log()
  local found, last, ended = find(1, false)
  local left = eligible - indexed
  if found[1] or ended or left <= 0 then return found[1] end
  found, last, ended = find(LOOK, false)
  if found[1] or ended then return found[1] end
  return find(LOOK, true)[left] or last
end
meet(first_in_log())
local age = oldest and math.max(0, call.partition_now - positions.split(oldest)) or 0

-- Redis counts all entries ever added, so that no publish and no acknowledgement has to.
local function count_added(name)
  if redis.call('EXISTS', name) == 0 then return 0 end
  local info = redis.call('XINFO', 'STREAM', name)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then return info[i + 1] end
  end
end
local published = count_added(key.log)
-- Nobody finishes the entries of a log.
local removed, finished = published - redis.call('XLEN', key.log), 0
if not call.partition_options.log_only then
  removed, finished = call.partition_removed, removed + call.partition_kept - call.partition_removed
end

-- Exact up to 500 subscribers with free credit and as many that pull; beyond that a lower bound.
local _, room = credit.free(500)
local scan, looked = call.partition_before.pulls and '0', 0
while scan and looked < 500 do
  local found = redis.call('HSCAN', key.subscribers, scan, 'COUNT', 100)
  for i = 1, #found[2], 2 do
    local subscriber = subscriptions.read(found[2][i], found[2][i + 1])
    if subscriptions.pulls(subscriber) then room = room + math.max(0, subscriber.limit - credit.lock_count(subscriber.subid)) end
    looked = looked + 1
  end
  scan = found[1] ~= '0' and found[1]
end
local several = call.partition_options.several
local unowned = several and not (call.partition_options.log_only or partition_owner.get())
return respond.results({waiting, eligible, delayed, in_flight, dying, age, redis.call('HLEN', key.subscribers), room, call.partition_kept,
  call.partition_kept_bytes, published, finished, removed, count_added(key.journal), waits, unowned and 1 or 0})
