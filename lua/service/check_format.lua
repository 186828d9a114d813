#!lua flags=allow-oom
-- Tell in which format the store is kept. An empty one is kept in whichever the caller keeps, and with `begin` it is noted. One that has
-- nodes and says nothing is older than the first format that was ever noted.
-- ARGV: format begin
-- RETURNS: ok older newer
local found, asked = redis.call('HGET', key.store, 'format'), tonumber(arg.format)
if not found and redis.call('EXISTS', key.names) == 0 then
  if arg.begin == '1' then redis.call('HSET', key.store, 'format', arg.format) end
  found = arg.format
end
found = tonumber(found or 0)
if found < asked then return {'older', found} end
if found > asked then return {'newer', found} end
return {'ok', found}
