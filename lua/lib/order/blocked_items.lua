-- Items that wait for others of their group, or until its key's bounds let one go out. `group_blocked` has members of group and position,
-- which sort as the log does within a group; a zero byte ends the group's key. `group_of` has the group of each.
local blocked_items = {}

function blocked_items.member(group, position)
  local padded = positions.pad(position)
  return group .. '\0' .. string.sub(padded, 1, 20) .. '-' .. string.sub(padded, 21)
end

local function position_of(text)
  local ms, seq = string.match(text, '%z0*(%d+)%-0*(%d+)$')
  return ms .. '-' .. seq
end

local function read(found)
  for i, text in ipairs(found) do found[i] = position_of(text) end
  return found
end

function blocked_items.add(group, position)
  redis.call('ZADD', key.group_blocked, 0, blocked_items.member(group, position))
end

-- Returns whether it was there.
function blocked_items.remove(group, position)
  return redis.call('ZREM', key.group_blocked, blocked_items.member(group, position)) == 1
end

-- Returns the positions of the first `count` of a group.
function blocked_items.first(group, count)
  return read(redis.call('ZRANGEBYLEX', key.group_blocked, '[' .. group .. '\0', '(' .. group .. '\1', 'LIMIT', 0, count))
end

-- Returns the head of a group; a group without one, because the node was not ordered, is led by the first that is blocked.
function blocked_items.head(group)
  local head = redis.call('HGET', key.group_heads, group) or blocked_items.first(group, 1)[1]
  if head then redis.call('HSET', key.group_heads, group, head) end
  return head
end

-- Returns the positions of up to `count` of all groups.
function blocked_items.all(count)
  return read(redis.call('ZRANGE', key.group_blocked, 0, count - 1))
end
