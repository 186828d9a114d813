#!lua flags=allow-oom
-- Forget a subscription that waited for approval; with a `stamp` only if nobody has taken it up since. The caller that is answered
-- `ok` is the one to tell of it.
-- ARGV: jid stamp
-- RETURNS: ok gone waiting
local line = redis.call('HGET', key.pending, arg.jid)
if not line then return {'gone'} end
if arg.stamp ~= '' and string.match(line, '^%d+ (%d+)') ~= arg.stamp then return {'waiting'} end
redis.call('HDEL', key.pending, arg.jid)
return {'ok'}
