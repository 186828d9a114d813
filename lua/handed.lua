#!lua flags=allow-oom
-- Dead letters have arrived at their node: forget them here.
-- KEYS: meta log index replaced parked ready delayed inflight history handover keyed selectors passed ranked ends
-- ARGV: now revision number | position
-- RETURNS: ok stale gone deleted | ok
-- WRITES: log replaced handover
--- @include partition items
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  if redis.call('HDEL', key.handover, row.position) == 1 then
    local entry = entries.current(row.position)
    if entry then items.erase(row.position, entry.log_id, '') end
  end
  results[i] = {'ok'}
end
writes.flush()
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
