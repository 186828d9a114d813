#!lua flags=allow-oom
-- Return the format of the store. An empty store gets the caller's. A store with nodes and without a recorded format is older than the
-- first recorded one.
-- ARGV: format
-- RETURNS: ok(format) older(format) newer(format)
local found, asked = redis.call('HGET', key.store, 'format'), tonumber(arg.format)
if not found and redis.call('EXISTS', key.all_nodes, key.names) == 0 then
  redis.call('HSET', key.store, 'format', arg.format)
  found = arg.format
end
found = tonumber(found or 0)
if found < asked then return {'older', found} end
if found > asked then return {'newer', found} end
return {'ok', found}
