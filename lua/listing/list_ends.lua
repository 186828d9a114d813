#!lua flags=no-writes
-- List the ends of items that a partition keeps: at most `limit`, with about `max_bytes` of results, those that are kept longest first.
-- ARGV: now revision limit max_bytes
-- RETURNS: ok(ends(expires_ms outcome)) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, bytes = {}, 0
local listed = redis.call('ZREVRANGEBYSCORE', key.result_expiry, '+inf', '(' .. string.format('%.0f', call.partition_now), 'WITHSCORES',
  'LIMIT', 0, tonumber(arg.limit))
for at = 1, #listed, 2 do
  if bytes >= tonumber(arg.max_bytes) then break end
  local line = redis.call('HGET', key.results, listed[at])
  if line then
    bytes = bytes + #line
    found[#found + 1] = {tonumber(listed[at + 1]), line}
  end
end
return respond.results({found})
