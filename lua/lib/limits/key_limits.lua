-- How much is handed out of each group key at most, for nodes that ask for it: their option `by_key` has the bounds.
-- All items of a key are in one partition. An item whose key is at its bound is blocked, and others go on; it is ready again when a lock of
-- its key ends or its time comes. `key_locks` has groups and positions of locked items, `key_rates` the number of each key's rate,
-- `key_blocked` each key with blocked items, by the revision under which that was decided, and `key_due` those that wait for a time.
-- `keyed` in `meta` says that there were bounds once.
-- CALL: applied = false, groups = nil
-- `applied`: items are taken to be handed out. `groups` has what was read in this call: locks and rate of each key.
local key_limits = {SOME = 50}

-- Applies the bounds, if there were any, to what is taken from now on.
function key_limits.begin()
  call.key_limits_applied = call.partition_before.keyed
end

local function state(group)
  call.key_limits_groups = call.key_limits_groups or {}
  local found = call.key_limits_groups[group]
  if found then return found end
  local bounds = call.partition_options.by_key or {}
  local most, rate = bounds.most, bounds.rate
  found = {most = most, rate = rate}
  found.locks = most and redis.call('ZLEXCOUNT', key.key_locks, '[' .. group .. '\0', '(' .. group .. '\1') or 0
  if rate then
    local at = redis.call('ZSCORE', key.key_rates, group) or 0
    found.at = rate_limit.clamp(rate, at)
    -- After the clock was set back, the rate goes on from the clock.
    if tonumber(at) > found.at then redis.call('ZADD', key.key_rates, rate_limit.after(rate, at, 0), group) end
  end
  call.key_limits_groups[group] = found
  return found
end

-- Returns how many more items of a key may go out.
local function room(known)
  local left = known.rate and rate_limit.room(known.rate, known.at) or key_limits.SOME
  return known.most and math.min(left, known.most - known.locks) or left
end

-- Notes that a key with blocked items is at a bound; if that is its rate, also when the next of its items may go out.
local function wait(group, known)
  redis.call('ZADD', key.key_blocked, call.partition_before.revision, group)
  if known.rate and not (known.most and known.locks >= known.most) then
    redis.call('ZADD', key.key_due, rate_limit.next_ms(known.rate, known.at), group)
  else
    redis.call('ZREM', key.key_due, group)
  end
end

-- Makes as many of a key's blocked items ready as may go out now; of an ordered node it is the head of the group. What the call has no
-- budget for is due at once.
local function release(group)
  if budget.exhausted() then return redis.call('ZADD', key.key_due, call.partition_stamp, group) end
  local known = state(group)
  local free = math.min(room(known), key_limits.SOME)
  if free <= 0 then return wait(group, known) end
  local ahead = call.partition_options.ordered and {blocked_items.head(group)}
  for _, position in ipairs(ahead or blocked_items.first(group, free)) do
    if blocked_items.remove(group, position) then redis.call('ZADD', scheduling.place(position)) end
    budget.spend(0.4)
  end
  redis.call('ZREM', key.key_due, group)
  if ahead or not blocked_items.first(group, 1)[1] then
    redis.call('ZREM', key.key_blocked, group)
  else
    redis.call('ZADD', key.key_blocked, call.partition_before.revision, group)
  end
end

-- Lets the next items of a key go out, if some are blocked and its bounds allow it.
function key_limits.wake(group)
  if redis.call('ZSCORE', key.key_blocked, group) then release(group) end
end

-- Passes over an item that is delayed now: others of its key may go out. On an ordered node those behind it go on waiting.
function key_limits.pass(position)
  local group = redis.call('HGET', key.group_of, position)
  if not group then return end
  if not call.partition_options.ordered then blocked_items.remove(group, position) end
  key_limits.wake(group)
end

-- Whether the bounds of its key let an item go out. If so, the counts of the key include it from now on; if not, it is blocked.
function key_limits.admits(entry)
  local position = entry.position
  local group = redis.call('HGET', key.group_of, position)
  if group then
    -- A blocked item that was delayed is ready when that is over.
    blocked_items.remove(group, position)
  else
    -- An item's group is that of its first version.
    local first = entry.log_id ~= position and log_entries.get(position) or entry
    group = first.key
    if group == '' then return true end
    redis.call('HSET', key.group_of, position, group)
  end
  local known = state(group)
  if room(known) > 0 then
    entry.group, known.locks = group, known.locks + 1
    if known.rate then known.at = rate_limit.clamp(known.rate, known.at) + known.rate.interval end
    return true
  end
  blocked_items.add(group, position)
  wait(group, known)
  budget.skip(1)
  return false
end

-- Records that an admitted item is locked.
function key_limits.lock(entry)
  local known = state(entry.group)
  write_buffer.add('ZADD', key.key_locks, 0, blocked_items.member(entry.group, entry.position))
  if known.rate then write_buffer.add('ZADD', key.key_rates, rate_limit.after(known.rate, known.at, 0), entry.group) end
end

-- Takes an admitted item back that found no subscriber.
function key_limits.put_back(entry)
  local known = state(entry.group)
  known.locks = known.locks - 1
  if known.rate then known.at = known.at - known.rate.interval end
end

-- Records that a lock has ended.
function key_limits.unlock(position)
  local group = redis.call('HGET', key.group_of, position)
  if not group or redis.call('ZREM', key.key_locks, blocked_items.member(group, position)) == 0 then return end
  local known = call.key_limits_groups and call.key_limits_groups[group]
  if known then known.locks = known.locks - 1 end
  key_limits.wake(group)
end

-- Lets more items of the keys go out whose items were locked, if their bounds still allow it; else says when.
function key_limits.go_on()
  for group in pairs(call.key_limits_groups or {}) do key_limits.wake(group) end
end

-- The node is not ordered any more: groups have no heads, and all that they held up is decided again.
local function behead()
  local found = redis.call('HSCAN', key.group_heads, 0, 'COUNT', key_limits.SOME)
  for i = 1, #found[2], 2 do
    redis.call('HDEL', key.group_heads, found[2][i])
    redis.call('ZADD', key.key_blocked, 0, found[2][i])
  end
  if found[1] == '0' then redis.call('HDEL', key.meta, 'unordered') end
  return found[1] ~= '0'
end

-- Lets items go out whose time has come, or whose bounds have changed; returns whether there are more.
function key_limits.promote()
  local more = call.partition_before.unordered and not call.partition_options.ordered and behead()
  local due = redis.call('ZRANGEBYSCORE', key.key_due, '-inf', call.partition_now, 'LIMIT', 0, key_limits.SOME)
  local changed = redis.call('ZRANGEBYSCORE', key.key_blocked, '-inf', '(' .. call.partition_before.revision, 'LIMIT', 0, key_limits.SOME)
  local full = redis.call('ZRANGEBYSCORE', key.key_rates, '-inf', call.partition_micros, 'LIMIT', 0, key_limits.SOME)
  for _, group in ipairs(due) do release(group) end
  for _, group in ipairs(changed) do release(group) end
  if #full > 0 then redis.call('ZREM', key.key_rates, unpack(full)) end
  return more or #due == key_limits.SOME or #changed == key_limits.SOME
end

-- Returns when the next key's time comes, if that is before `due` (0: never). A key waits for one interval at most, and 2 ms for rounding: a
-- later time is of before the clock was set back, and such keys are looked at anew at once.
function key_limits.next(due)
  local first = redis.call('ZRANGE', key.key_due, 0, 0, 'WITHSCORES')[2]
  local rate = call.partition_options.by_key and call.partition_options.by_key.rate
  if first and rate and first - call.partition_now > rate.interval / 1000 + 2 then
    for _, group in ipairs(redis.call('ZRANGE', key.key_due, 0, key_limits.SOME - 1)) do
      redis.call('ZADD', key.key_due, call.partition_stamp, group)
    end
    first = call.partition_stamp
  end
  return first and (due == 0 or tonumber(first) < due) and tonumber(first) or due
end
