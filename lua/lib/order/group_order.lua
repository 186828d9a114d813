-- Order within a group, for nodes that ask for it. One item of each group key is the head (`group_heads`): it is in flight, or next to
-- be. Later ones wait in `group_blocked` until the head has left the queue. `group_of` has the group of each of both.
local group_order = {}

-- Whether the next item of the queue may go out; else it is blocked until those before it are gone.
function group_order.may_go_out(position, group)
  if not call.partition_options.ordered then return true end
  group = redis.call('HGET', key.group_of, position) or group
  if group == '' then return true end
  local head = redis.call('HGET', key.group_heads, group)
  if head == position then return true end
  redis.call('HSET', key.group_of, position, group)
  if not head then
    redis.call('HSET', key.group_heads, group, position)
    return true
  end
  blocked_items.add(group, position)
  budget.skip(1)
  return false
end

-- Makes the next of a group ready after its head has left the queue.
local function follow(group)
  local following = blocked_items.first(group, 1)[1]
  if following then
    blocked_items.remove(group, following)
    redis.call('HSET', key.group_heads, group, following)
    -- At once: a later row of the same call may drop it again.
    redis.call('ZADD', scheduling.place(following))
  else
    redis.call('HDEL', key.group_heads, group)
  end
end

-- Records that an item has left the queue: the next of its group is ready, or may be. A later version, the `successor`, waits with the group
-- in the order of the log, if its own is the same group; returns whether it does.
function group_order.replace(position, successor, own)
  local keyed = call.partition_before.keyed
  local group = (call.partition_options.ordered or keyed) and redis.call('HGET', key.group_of, position)
  if not group then return false end
  redis.call('HDEL', key.group_of, position)
  local leads = call.partition_options.ordered and redis.call('HGET', key.group_heads, group) == position
  if keyed or not leads then blocked_items.remove(group, position) end
  local waits = leads and successor and own == group
  if waits then
    redis.call('HSET', key.group_of, successor, group)
    blocked_items.add(group, successor)
  end
  if leads then follow(group) end
  if keyed then key_limits.wake(group) end
  return waits
end

-- Records the same of an item without a later version.
function group_order.remove(position)
  group_order.replace(position, false, '')
end
