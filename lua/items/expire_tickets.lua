#!lua flags=allow-oom
-- Let tickets of handed-over items expire soon: the sending nodes know of the arrival, and only a call that Redis runs late could send
-- the items again.
-- ARGV: now revision once_ms | ticket
-- RETURNS: ok stale gone deleted | ok
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local at = string.format('%.0f', call.partition_now + tonumber(arg.once_ms))
  redis.call('ZADD', key.dedupe, 'XX', at, dedupe_window.HANDED .. row.ticket)
  results[i] = {'ok'}
end
return respond.results(results)
