#!lua flags=allow-oom
-- Note in an index of one bare JID what is about to be so (`coming`), or what is so (`settled`). A score is when that was, in
-- ms, and negative while it is coming: so an end that is heard of late strikes off nothing that comes again. Where there
-- is no room, the longest known gives way to the kind `evict`. Answers the time, and 1 for what was known before.
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
