-- Order within a group, for nodes that ask for it. One item of each group key is the head (`group_heads`): it is in flight, or next to
-- be. Later ones wait in `group_blocked` until the head has left the queue. `group_of` has the group of each of both.
-- CALL: skipped = 0
local group_order = {MOST = 500}

-- Members sort as the log does within a group; a zero byte ends the group's key.
local function member(group, position)
  local padded = positions.padded(position)
  return group .. '\0' .. string.sub(padded, 1, 20) .. '-' .. string.sub(padded, 21)
end

local function position_of(text)
  local ms, seq = string.match(text, '%z0*(%d+)%-0*(%d+)$')
  return ms .. '-' .. seq
end

-- Whether the next item of the queue may go out; else it is blocked until those before it are gone.
function group_order.may_go_out(position, group)
  if not call.partition_ordered then return true end
  group = redis.call('HGET', key.group_of, position) or group
  if group == '' then return true end
  local head = redis.call('HGET', key.group_heads, group)
  if head == position then return true end
  redis.call('HSET', key.group_of, position, group)
  if not head then
    redis.call('HSET', key.group_heads, group, position)
    return true
  end
  redis.call('ZADD', key.group_blocked, 0, member(group, position))
  call.group_order_skipped = call.group_order_skipped + 1
  return false
end

-- Returns the index of an item that may go out and that the cursor will not reach, as arguments of ZADD.
function group_order.place(position)
  local rank = call.partition_hinted and scheduling.rank(position)
  if rank then return key.by_priority, rank, positions.padded(position) end
  return key.ready, positions.place(position), position
end

-- Records that an item has left the queue: the next of its group is ready.
function group_order.remove(position)
  local group = call.partition_ordered and redis.call('HGET', key.group_of, position)
  if not group then return end
  redis.call('HDEL', key.group_of, position)
  if redis.call('HGET', key.group_heads, group) ~= position then
    redis.call('ZREM', key.group_blocked, member(group, position))
    return
  end
  local following = redis.call('ZRANGEBYLEX', key.group_blocked, '[' .. group .. '\0', '(' .. group .. '\1', 'LIMIT', 0, 1)[1]
  if following then
    redis.call('ZREM', key.group_blocked, following)
    redis.call('HSET', key.group_heads, group, position_of(following))
    -- At once: a later row of the same call may drop it again.
    redis.call('ZADD', group_order.place(position_of(following)))
  else
    redis.call('HDEL', key.group_heads, group)
  end
end

-- Returns the positions of up to `count` blocked items.
function group_order.waiting(count)
  local found = redis.call('ZRANGE', key.group_blocked, 0, count - 1)
  for i, text in ipairs(found) do found[i] = position_of(text) end
  return found
end
