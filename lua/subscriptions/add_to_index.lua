#!lua flags=allow-oom
-- Note in an index of one bare JID what will be so (`coming`), or what is so (`settled`). The score is when that was, in ms; it is
-- negative while it is coming, so that an end which is heard of late does not remove what begins again. Where there is no room, the
-- entry that is known longest gives way to the kind `evict`. Answers the time, and 1 if the entry was known before.
-- ARGV: now index kind member most idle_seconds
-- RETURNS: ok too-many
local indexes = {nodes = key.nodes, pending_nodes = key.pending_nodes, affiliated = key.affiliated, owned = key.owned}
local index, now = indexes[arg.index], clock.now()
local known = redis.call('ZSCORE', index, arg.member)
local over = redis.call('ZCARD', index) - tonumber(arg.most) + 1
if not known and arg.kind ~= 'settled' and over > 0 then
  local longest = arg.kind == 'evict' and redis.call('ZRANGEBYSCORE', index, 0, '+inf', 'LIMIT', 0, over) or {}
  if #longest < over then return {'too-many'} end
  redis.call('ZREM', index, unpack(longest))
end
redis.call('ZADD', index, string.format('%.0f', arg.kind == 'settled' and now or -now), arg.member)
presence.keep()
return {'ok', string.format('%.0f', now), known and 1 or 0}
