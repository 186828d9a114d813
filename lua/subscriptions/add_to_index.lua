#!lua flags=allow-oom
-- Add an entry to an index of one bare JID: with `coming` before the change that it records, with `settled` after, and with `subscribed`
-- after a subscription. The score is the time in ms, negative while the change is under way: so a late report of an end does not remove what
-- begins again. In a full index the kind `evict` removes the oldest entry. `client` is the program that makes a subscription; empty, it
-- leaves the one that is known, but `subscribed` removes it. Returns the time, 1 if the entry was known before, and how many others there
-- are.
-- ARGV: now index kind member client most idle_seconds
-- RETURNS: ok(now_ms before others) too-many
local indexes = {nodes = key.nodes, pending_nodes = key.pending_nodes, affiliated = key.affiliated, created_nodes = key.created_nodes}
local index, now = indexes[arg.index], clock.now()
local settled = arg.kind == 'settled' or arg.kind == 'subscribed'
local known = redis.call('ZSCORE', index, arg.member)
local count = redis.call('ZCARD', index)
local over = count - tonumber(arg.most) + 1
if not known and not settled and over > 0 then
  local longest = arg.kind == 'evict' and redis.call('ZRANGEBYSCORE', index, 0, '+inf', 'LIMIT', 0, over) or {}
  if #longest < over then return {'too-many'} end
  redis.call('ZREM', index, unpack(longest))
end
redis.call('ZADD', index, string.format('%.0f', settled and now or -now), arg.member)
if arg.client ~= '' then
  redis.call('HSET', key.clients, arg.member, arg.client)
elseif arg.kind == 'subscribed' then
  redis.call('HDEL', key.clients, arg.member)
end
presence.keep()
return {'ok', string.format('%.0f', now), known and 1 or 0, known and count - 1 or count}
