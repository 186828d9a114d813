-- What leaves the partition and must arrive elsewhere, once. `outbox` has an entry for each, by its next time in ms. The name says what it
-- is: `item/POSITION` in `outbox_items`; `end/TOKEN`, `left/POSITION` and `publish/POSITION/NUMBER` in `outbox_records`;
-- `child/TOKEN/REFERENCE`, of `awaited`; `parents/POSITION` in `dependents`; `schedule/ID` in `schedules`. Those that only a frontend with a stream can deliver, `reply/POSITION` in
-- `outbox_records`, are in `outbox_replies`. A caller that is told that entries are due reads them (`read_outbox`), delivers them and ends
-- them (`end_entries`). A read is an attempt: it puts the next time off, each time longer, and `outbox_attempts` counts. So a reader that
-- dies loses nothing, and what cannot arrive hides nobody. A schedule comes at its time, so its pauses do not grow.
-- CALL: due = false, left = nil
-- `due` tells the caller; `left` makes the partition due at once, for a frontend with a stream.
local outbox = {FIRST_MS = 5000, LAST_MS = 60000, LOOKED = 400}

-- Returns the kind and the rest of an entry's name.
function outbox.split(entry)
  return string.match(entry, '^(%l+)/(.*)$')
end

local function is_reply(entry)
  return outbox.split(entry) == 'reply'
end

-- Adds an entry that is due, or with `at` (ms) gives it that next time, as after progress.
function outbox.put(entry, at)
  local place = is_reply(entry) and key.outbox_replies or key.outbox
  rare_keys.write('ZADD', place, string.format('%.0f', at or call.partition_now), entry)
  if at then redis.call('HDEL', key.outbox_attempts, entry) end
  if at and at > call.partition_now then return end
  if call.caller_sends or not is_reply(entry) then call.outbox_due = 1 else call.outbox_left = true end
end

function outbox.remove(entry)
  local place = is_reply(entry) and key.outbox_replies or key.outbox
  redis.call('ZREM', place, entry)
  redis.call('HDEL', key.outbox_attempts, entry)
end

-- Notes that an entry is about to be delivered. Returns the number of the attempt.
function outbox.attempt(entry)
  local attempts = redis.call('HINCRBY', key.outbox_attempts, entry, 1)
  local grown = outbox.split(entry) == 'schedule' and 1 or 2 ^ (attempts - 1)
  local at = string.format('%.0f', call.partition_now + math.min(outbox.LAST_MS, outbox.FIRST_MS * grown))
  local place = is_reply(entry) and key.outbox_replies or key.outbox
  rare_keys.write('ZADD', place, at, entry)
  return attempts
end

-- Returns the number of the last attempt, as text.
function outbox.last_attempt(entry)
  return redis.call('HGET', key.outbox_attempts, entry) or '0'
end

local function first_due(name, most)
  return redis.call('ZRANGEBYSCORE', name, '-inf', call.partition_stamp, 'LIMIT', 0, most)
end

-- Returns entries that are due and that the caller can deliver, the longest due first, and whether there may be more.
function outbox.find_due()
  local found = first_due(key.outbox, outbox.LOOKED)
  local replies = call.caller_sends and first_due(key.outbox_replies, outbox.LOOKED) or {}
  for _, entry in ipairs(replies) do found[#found + 1] = entry end
  return found, #found >= outbox.LOOKED
end

-- Tells the caller if anything is due that it can deliver.
function outbox.look()
  local rest = rare_keys.any() and first_due(key.outbox, 1)[1]
  local reply = call.caller_sends and call.partition_before.replies and first_due(key.outbox_replies, 1)[1]
  if rest or reply then call.outbox_due = 1 end
end

-- Returns when somebody has to look next, or nil. Who was told that entries are due is on the way, unless it dies.
function outbox.next()
  if call.outbox_left then return call.partition_now end
  local soonest
  for _, name in ipairs({rare_keys.any() and key.outbox, call.partition_before.replies and key.outbox_replies}) do
    local first = name and tonumber(redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')[2])
    if first and not (soonest and soonest <= first) then soonest = first end
  end
  return soonest and (soonest > call.partition_now and soonest or call.partition_now + outbox.FIRST_MS)
end
