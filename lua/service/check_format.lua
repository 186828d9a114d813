#!lua flags=allow-oom
-- Return the format of the store, and the least format whose programs may use it. An empty store gets the caller's. A store that has a newer
-- format and may be used by the caller gets the caller's again: it is to be upgraded anew, for the caller writes what it knows. A store with
-- nodes and without a recorded format is older than the first recorded one.
-- ARGV: format least
-- RETURNS: ok(format least)
local noted, asked = redis.call('HMGET', key.store, 'format', 'least'), tonumber(arg.format)
local found = tonumber(noted[1] or 0)
local least = tonumber(noted[2] or found)
if found == 0 and redis.call('EXISTS', key.all_nodes, key.names) == 0 then
  found, least = asked, tonumber(arg.least)
  redis.call('HSET', key.store, 'format', found, 'least', least)
elseif found > asked and least <= asked then
  found = asked
  redis.call('HSET', key.store, 'format', found)
end
return {'ok', found, least}
