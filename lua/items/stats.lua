#!lua flags=no-writes
-- Count what a partition holds.
-- ARGV: now revision number
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local in_flight, dying = redis.call('HLEN', key.inflight), redis.call('HLEN', key.handovers)
local delayed, waits = redis.call('ZCARD', key.delayed), dependents.count()
local stored = redis.call('XLEN', key.log) - redis.call('HLEN', key.replaced) - redis.call('HLEN', key.successors)
  - call.partition_kept
local waiting = math.max(0, stored - in_flight - dying)

local oldest = redis.call('ZRANGE', key.ready, 0, 0)[1]
local skipped = call.partition_selects and skipped_items.after('', '', 1)[1]
if skipped and not (oldest and positions.after(skipped, oldest)) then oldest = skipped end
for rank = 0, call.partition_hinted and scheduling.LAST or -1 do
  local padded = redis.call('ZRANGEBYSCORE', key.by_priority, rank, rank, 'LIMIT', 0, 1)[1]
  local position = padded and scheduling.unpadded(padded)
  if position and not (oldest and positions.after(position, oldest)) then oldest = position end
end
-- Skips entries that have an index of their own: re-appended, delayed, with a priority, or with parents. Reads payloads, so many only if
-- needed.
local function first(count)
  for _, entry in ipairs((log_entries.range('(' .. call.partition_cursor, '+', count))) do
    if not (entry.at or scheduling.of(entry).beside or scheduling.is_delayed(entry)) then return entry.log_id end
  end
end
local new = first(1) or first(100)
if new and (not oldest or positions.after(oldest, new)) then oldest = new end
local age = oldest and math.max(0, call.partition_now - positions.split(oldest)) or 0

-- Redis counts all entries ever added, so that no publish and no acknowledgement has to.
local function added(name)
  if redis.call('EXISTS', name) == 0 then return 0 end
  local info = redis.call('XINFO', 'STREAM', name)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then return info[i + 1] end
  end
end
local published = added(key.log)
local finished = published - redis.call('XLEN', key.log) + call.partition_kept

-- Exact up to 500 subscribers with free credit; beyond that a lower bound.
local _, room = credit.free(500)
return {'ok', {waiting, math.max(0, waiting - delayed - waits - redis.call('ZCARD', key.group_blocked)), delayed, in_flight, dying, age,
  redis.call('HLEN', key.subscribers), room, call.partition_kept, call.partition_kept_bytes, published, finished,
  added(key.journal), waits}, {}, {}, {}, 0, 0, call.partition_token}
