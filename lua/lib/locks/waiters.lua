-- Pull subscriptions that wait for items of the partition. `waiting` has their subids by the number since which each has waited; one that
-- was told that items wait is behind all these, by when. `waiters` has `since seen process`: that number, when it last looked, in ms, and
-- the process to tell. One that has come takes items or waits again; one that does not come is gone. One without room is in `waiters` alone,
-- with `-` for that number, until one of its locks ends. `waits` in `meta` is set once any waited.
local waiters = {TOLD = 4e15, MOST = 8, COMES_MS = 2000, GONE_MS = 15000}

-- Notes that one waits; it keeps its place unless it was served.
function waiters.note(subid, process, served)
  partition.turn_on('waits')
  local since = not served and string.match(redis.call('HGET', key.waiters, subid) or '', '^(%d+) ')
  since = since or string.format('%d', partition.next_number())
  redis.call('ZADD', key.waiting, since, subid)
  redis.call('HSET', key.waiters, subid, since .. ' ' .. call.partition_stamp .. ' ' .. process)
end

local function forget(subid)
  redis.call('ZREM', key.waiting, subid)
  redis.call('HDEL', key.waiters, subid)
end

function waiters.remove(subid)
  if call.partition_before.waits then forget(subid) end
end

-- Notes that one would wait if it had room.
function waiters.note_full(subid, process)
  partition.turn_on('waits')
  redis.call('ZREM', key.waiting, subid)
  redis.call('HSET', key.waiters, subid, '- ' .. call.partition_stamp .. ' ' .. process)
end

-- Lets one wait that had no room before one of its locks ended.
function waiters.make_room(subid)
  if not call.partition_before.waits then return end
  local rest = string.match(redis.call('HGET', key.waiters, subid) or '', '^%-( .*)$')
  if not rest then return end
  local since = string.format('%d', partition.next_number())
  redis.call('ZADD', key.waiting, since, subid)
  redis.call('HSET', key.waiters, subid, since .. rest)
end

-- Lets one wait no more that has taken all that it has room for.
function waiters.fill(subid)
  if not call.partition_before.waits then return end
  local rest = string.match(redis.call('HGET', key.waiters, subid) or '', '^%d+( .*)$')
  if not rest then return end
  redis.call('ZREM', key.waiting, subid)
  redis.call('HSET', key.waiters, subid, '-' .. rest)
end

-- Whether another was told a moment ago, and so is on its way, and this one was not.
function waiters.is_behind(subid)
  if not call.partition_before.waits then return false end
  local since = waiters.TOLD + call.partition_now - waiters.COMES_MS
  if redis.call('ZCOUNT', key.waiting, since, '+inf') == 0 then return false end
  local score = redis.call('ZSCORE', key.waiting, subid)
  return not (score and tonumber(score) >= since)
end

-- Tells one, unless it has not looked for so long that its process must be gone; returns whether it did.
local function tell(subid)
  local seen, process = string.match(redis.call('HGET', key.waiters, subid) or '', '^%d+ (%d+) (.*)$')
  if not seen or tonumber(seen) + waiters.GONE_MS < call.partition_now then
    forget(subid)
    return false
  end
  redis.call('ZADD', key.waiting, waiters.TOLD + call.partition_now, subid)
  notices.tell({'waiting', process, subid})
  return true
end

local function next_ones(count)
  return redis.call('ZRANGEBYSCORE', key.waiting, '-inf', '(' .. string.format('%d', waiters.TOLD), 'LIMIT', 0, count)
end

-- Tells those who have waited longest, as many as there may be items; the one that gave the first item back last.
local function tell_some(count)
  local found, first = next_ones(waiters.MOST), redis.call('ZRANGE', key.ready, 0, 0)[1]
  if first and attempt_history.of(first).holders[1] == found[1] then
    if not found[2] and waiters.is_behind(found[1]) then return end
    if found[2] then found[1], found[2] = found[2], found[1] end
  end
  for _, subid in ipairs(found) do
    if count > 0 and tell(subid) then count = count - 1 end
  end
end

-- Whether an item waits that a subscription selects.
function waiters.has_match(subid)
  if call.partition_before.selects and selectors.get(subid) then return selection.has_match(subid) end
  return ready_queue.waits()
end

-- Tells those who select a waiting item; those that gave items back in this call only if nobody else does. Returns 1 when there is more
-- to examine.
local function tell_selecting()
  local lacking, any = false, false
  repeat
    lacking = false
    local found, givers = next_ones(selectors.MOST), {}
    for i = 1, #found do
      if call.lock_end_touched[found[i]] then
        givers[#givers + 1] = found[i]
      elseif waiters.has_match(found[i]) then
        any = tell(found[i]) or any
      else
        lacking = true
      end
    end
    for i = 1, any and 0 or #givers do
      if waiters.has_match(givers[i]) then tell(givers[i]) else lacking = true end
    end
  until not (lacking and selection.pass())
  return call.selection_more and 1 or 0
end

-- Tells those who wait that items wait that may go out: about `count`. Subscribers with credit come first. Returns 1 when there is more to
-- examine.
function waiters.wake(count)
  local meta = call.partition_before
  if not meta.waits or call.partition_options.paused or call.dispatch_owed or partition_owner.get() then return 0 end
  if count == 0 or not next_ones(1)[1] or not ready_queue.waits() then return 0 end
  if call.partition_options.hand_out and hand_out_limits.room() == 0 then return 0 end
  if call.partition_before.selects then return tell_selecting() end
  tell_some(count)
  return 0
end

-- Forgets those that were told and have not come.
function waiters.tidy()
  if not call.partition_before.waits then return end
  local upto = waiters.TOLD + call.partition_now - waiters.GONE_MS
  for _, subid in ipairs(redis.call('ZRANGEBYSCORE', key.waiting, string.format('%d', waiters.TOLD), upto, 'LIMIT', 0, 200)) do
    forget(subid)
  end
end
