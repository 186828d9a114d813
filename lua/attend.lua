#!lua flags=allow-oom
-- Keep, for one bare JID, which of its resources are here, which nodes it has to do with, and which subscriptions of it wait
-- for approval; presence may be heard by any frontend (QX16). Answers the nodes to leave for what has just gone: full JIDs by their resource, and the bare JID's
-- when no resource is left; and the node of one who subscribed, when it was known before. Without nodes the record ends by
-- itself after `idle_seconds`.
-- KEYS: resources nodes asked
-- ARGV: kind resource node idle_seconds most
-- RETURNS: ok too-many
-- WRITES: resources nodes asked
local kinds = {}

-- A member of `nodes` is `resource node` (` node` for the bare JID): resources may hold spaces, so they are escaped by the caller.
function kinds.subscribed() return redis.call('SADD', key.nodes, arg.resource .. ' ' .. arg.node) == 0 end

function kinds.left() redis.call('SREM', key.nodes, arg.resource .. ' ' .. arg.node) end

function kinds.asked() redis.call('SADD', key.asked, arg.resource .. ' ' .. arg.node) end

function kinds.answered() redis.call('SREM', key.asked, arg.resource .. ' ' .. arg.node) end

function kinds.available() redis.call('SADD', key.resources, arg.resource) end

function kinds.unavailable() redis.call('SREM', key.resources, arg.resource) end

local function full(name, member)
  return redis.call('SISMEMBER', name, member) == 0 and redis.call('SCARD', name) >= tonumber(arg.most)
end

if (arg.kind == 'subscribed' and full(key.nodes, arg.resource .. ' ' .. arg.node))
  or (arg.kind == 'asked' and full(key.asked, arg.resource .. ' ' .. arg.node))
  or (arg.kind == 'available' and full(key.resources, arg.resource)) then return {'too-many'} end
local known = kinds[arg.kind]()
local leave = known and arg.kind == 'subscribed' and {arg.resource .. ' ' .. arg.node} or {}
if arg.kind == 'unavailable' then
  local alone = redis.call('EXISTS', key.resources) == 0
  for _, member in ipairs(redis.call('SMEMBERS', key.nodes)) do
    local resource = string.match(member, '^(%S*) ')
    if resource == arg.resource or (alone and resource == '') then leave[#leave + 1] = member end
  end
end
if redis.call('EXISTS', key.nodes) == 1 then
  redis.call('PERSIST', key.resources)
else
  redis.call('EXPIRE', key.resources, arg.idle_seconds)
end
return {'ok', leave}
