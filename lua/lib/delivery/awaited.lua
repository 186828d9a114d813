-- Items whose end others wait for, their dependents, which may be in other partitions and nodes. `replies` has a token of each such item,
-- under `+POSITION`; `awaited` has who waits, by token and by reference (`INCARNATION/PARTITION/POSITION/INDEX/NODE`). When the item leaves
-- its queue its end is in `outcomes` under `+TOKEN`, until all dependents know it. `handovers_told` has when it was last announced, under
-- `+TOKEN`. A dependent that leaves early tells nobody. So a frontend checks who still waits, at the latest after `CHECK_MS`, and when
-- `awaited` has as many members as `awaited` in `meta` says: at least `LEAST`, and twice those that were there after the last check.
-- `handovers_told` has when that is due, under `CHECK`.
local awaited = {MARK = '+', TOKEN = 't', REFERENCE = 'r', CHECK = '?', CHECK_MS = 3600000, LEAST = 200}

local function by_token(token, reference)
  return awaited.TOKEN .. token .. '\0' .. reference
end

local function by_reference(reference, token)
  return awaited.REFERENCE .. reference .. '\0' .. token
end

-- Returns the rest of the members that begin so, in order.
local function range(first, after, most)
  local from = after == '' and '[' .. first .. '\0' or '(' .. first .. '\0' .. after
  local found = redis.call('ZRANGEBYLEX', key.awaited, from, '(' .. first .. '\1', 'LIMIT', 0, most)
  for i, member in ipairs(found) do found[i] = string.sub(member, #first + 2) end
  return found
end

-- Returns the token that a reference waits for, or nil.
function awaited.find(reference)
  return range(awaited.REFERENCE .. reference, '', 1)[1]
end

-- Returns up to `most` references that wait for a token, after one.
function awaited.references(token, after, most)
  return range(awaited.TOKEN .. token, after, most)
end

-- Returns the token of an item: the position that it had when the first one waited.
function awaited.token(position)
  return redis.call('HGET', key.replies, awaited.MARK .. position) or position
end

-- Lets as many members be added until the next check as there are.
local function set_limit(count)
  call.partition_before.awaited = string.format('%d', math.max(awaited.LEAST, 2 * count))
  redis.call('HSET', key.meta, 'awaited', call.partition_before.awaited)
end

local function check_later()
  return string.format('%.0f', call.partition_now + awaited.CHECK_MS - next_due.RETRY_MS)
end

-- Announces that who waits is to be checked, and again five seconds later unless somebody does it.
function awaited.check()
  call.rare_keys_any = true
  redis.call('ZADD', key.handovers_told, call.partition_stamp, awaited.CHECK)
  notices.tell({'dependency', awaited.CHECK})
end

function awaited.add(position, reference)
  if not call.partition_before.awaited then
    partition.turn_on('replies')
    set_limit(0)
  end
  local token = awaited.token(position)
  redis.call('HSET', key.replies, awaited.MARK .. position, token)
  redis.call('ZADD', key.awaited, 0, by_token(token, reference), 0, by_reference(reference, token))
  call.rare_keys_any = true
  redis.call('ZADD', key.handovers_told, 'NX', check_later(), awaited.CHECK)
  local count = redis.call('ZCARD', key.awaited)
  if count >= tonumber(call.partition_before.awaited) then
    set_limit(count)
    awaited.check()
  end
end

-- Removes those that know the end of an item or are gone, and that end when all know it.
function awaited.remove(token, references)
  for _, reference in ipairs(references) do
    redis.call('ZREM', key.awaited, by_token(token, reference), by_reference(reference, token))
  end
  if #awaited.references(token, '', 1) > 0 then return end
  local mark = awaited.MARK .. token
  redis.call('HDEL', key.outcomes, mark)
  redis.call('ZREM', key.handovers_told, mark)
  if redis.call('EXISTS', key.awaited) == 0 then redis.call('ZREM', key.handovers_told, awaited.CHECK) end
end

-- Returns up to `most` of those that wait, each a reference, a zero byte and a token, after one. An empty page ends a check; any other one
-- says that the check goes on.
function awaited.page(after, most)
  call.rare_keys_any = true
  local first = awaited.REFERENCE
  local found = redis.call('ZRANGEBYLEX', key.awaited, '(' .. first .. after, '(' .. awaited.TOKEN, 'LIMIT', 0, most)
  for i, member in ipairs(found) do found[i] = string.sub(member, #first + 1) end
  if #found > 0 then
    redis.call('ZADD', key.handovers_told, call.partition_stamp, awaited.CHECK)
    return found
  end
  local count = redis.call('ZCARD', key.awaited)
  set_limit(count)
  if count > 0 then
    redis.call('ZADD', key.handovers_told, check_later(), awaited.CHECK)
  else
    redis.call('ZREM', key.handovers_told, awaited.CHECK)
  end
  return found
end

-- A later version of an item takes its place.
function awaited.pass_on(position, successor)
  local token = redis.call('HGET', key.replies, awaited.MARK .. position)
  if not token then return end
  redis.call('HDEL', key.replies, awaited.MARK .. position)
  redis.call('HSET', key.replies, awaited.MARK .. successor, token)
end

local function tell(token)
  call.rare_keys_any = true
  redis.call('ZADD', key.handovers_told, call.partition_stamp, awaited.MARK .. token)
  notices.tell({'dependency', awaited.MARK .. token})
end

-- An item has left the queue.
function awaited.note_end(position, item, state, reason, result)
  local token = redis.call('HGET', key.replies, awaited.MARK .. position)
  if not token then return end
  redis.call('HDEL', key.replies, awaited.MARK .. position)
  redis.call('HSET', key.outcomes, awaited.MARK .. token, outcome_record.write(state, '', item, reason, result))
  tell(token)
end

-- Announces an end again that some dependents do not know.
function awaited.resume(mark)
  if redis.call('HEXISTS', key.outcomes, mark) == 1 then
    tell(string.sub(mark, 2))
  else
    redis.call('ZREM', key.handovers_told, mark)
  end
end
