#!lua flags=allow-oom
-- Drop items that wait, or all of a log, a bounded part per call; locked items are left to their holders (P25).
-- KEYS: meta log index replaced parked ready delayed inflight history handover
-- ARGV: now revision number
-- RETURNS: ok stale gone deleted
-- WRITES: meta log index replaced ready delayed history
--- @include waiting items
local refusal = partition.load()
if refusal then return refusal end
local CHUNK = 300
local dropped = waiting.take(CHUNK)
if partition.log_only then
  for i, raw in ipairs(redis.call('XRANGE', key.log, '-', '+', 'COUNT', CHUNK)) do
    dropped[i] = entries.read(raw)
    dropped[i].position = raw[1]
  end
end
-- A range that ends at -1 would be all of it.
local delayed = #dropped < CHUNK and redis.call('ZRANGE', key.delayed, 0, CHUNK - #dropped - 1) or {}
for _, position in ipairs(delayed) do
  local entry = entries.current(position)
  if entry then
    entry.position = position
    dropped[#dropped + 1] = entry
  end
end
for _, entry in ipairs(dropped) do items.drop(entry.position, entry) end
writes.flush()
partition.save()
return {'ok', {#dropped}, {}, {}, {}, 0, #dropped == CHUNK and 1 or 0, partition.token}
