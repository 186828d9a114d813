#!lua flags=allow-oom
-- Remove outcomes that were sent to their publishers.
-- ARGV: now revision | position
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
for _, row in ipairs(rows) do
  redis.call('HDEL', key.outcomes, row.position)
  redis.call('ZREM', key.handovers_told, outcomes.MARK .. row.position)
end
return respond.results({})
