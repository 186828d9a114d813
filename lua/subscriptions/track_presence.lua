#!lua flags=allow-oom
-- Keep which resources of one bare JID are here; presence may be heard by any frontend (QX16). Answers the nodes to leave for
-- what has just gone: full JIDs by their resource, and the bare JID's when no resource is left. Where there are `most`, the
-- longest unheard gives way: it may have gone when nobody was there to hear it.
-- ARGV: now kind resource most idle_seconds
-- RETURNS: ok
local leave = {}
if arg.kind == 'available' then
  redis.call('ZADD', key.resources, string.format('%.0f', clock.now()), arg.resource)
  redis.call('ZREMRANGEBYRANK', key.resources, 0, -1 - tonumber(arg.most))
else
  redis.call('ZREM', key.resources, arg.resource)
  local alone = redis.call('EXISTS', key.resources) == 0
  -- A member of `nodes` is `resource node` (` node` for the bare JID): resources may hold spaces, so they are escaped by the caller.
  for _, member in ipairs(redis.call('ZRANGE', key.nodes, 0, -1)) do
    local resource = string.match(member, '^(%S*) ')
    if resource == arg.resource or (alone and resource == '') then leave[#leave + 1] = member end
  end
end
presence.keep()
return {'ok', leave}
