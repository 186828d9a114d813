#!lua flags=allow-oom
-- Remove a subscription that waited for approval; with a `stamp`, only if nobody has claimed it since. The caller that gets `ok` sends
-- the notice.
-- ARGV: jid stamp
-- RETURNS: ok gone waiting
local line = redis.call('HGET', key.pending, arg.jid)
if not line then return {'gone'} end
if arg.stamp ~= '' and string.match(line, '^%d+ (%d+)') ~= arg.stamp then return {'waiting'} end
redis.call('HDEL', key.pending, arg.jid)
return {'ok'}
