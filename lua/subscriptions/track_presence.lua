#!lua flags=allow-oom
-- Record which resources of one bare JID are online; any frontend may receive the presence (QX16). Returns the nodes to unsubscribe for a
-- resource that left: full JIDs of that resource, and the bare JID when no resource is left. With `most` resources the one last seen
-- longest ago is removed: it may have left while no frontend received presence.
-- ARGV: now kind resource most idle_seconds
-- RETURNS: ok(members)
local leave = {}
if arg.kind == 'available' then
  redis.call('ZADD', key.resources, string.format('%.0f', clock.now()), arg.resource)
  redis.call('ZREMRANGEBYRANK', key.resources, 0, -1 - tonumber(arg.most))
else
  redis.call('ZREM', key.resources, arg.resource)
  local alone = redis.call('EXISTS', key.resources) == 0
  -- A member of `nodes` is `resource node` (` node` for the bare JID). The caller escapes resources, which may contain spaces.
  for _, member in ipairs(redis.call('ZRANGE', key.nodes, 0, -1)) do
    local resource = string.match(member, '^(%S*) ')
    if resource == arg.resource or (alone and resource == '') then leave[#leave + 1] = member end
  end
end
presence.keep()
return {'ok', leave}
