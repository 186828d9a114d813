#!lua flags=allow-oom
-- Remove dependents that know the end of an item, and that end when all know it.
-- ARGV: now revision token | reference
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
for _, row in ipairs(rows) do awaited.remove(arg.token, row.reference) end
if #awaited.references(arg.token, '', 1) == 0 then
  local mark = awaited.MARK .. arg.token
  redis.call('HDEL', key.outcomes, mark)
  redis.call('ZREM', key.handovers_told, mark)
end
return {'ok', {}, {}, {}, {}, 0, 0, call.partition_token}
