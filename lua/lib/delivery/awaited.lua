-- Items whose end others wait for, their dependents, which may be in other partitions and nodes. `replies` has a token of each such item,
-- under `+POSITION`; `awaited` has who waits, by token and by reference (`INCARNATION/PARTITION/POSITION/INDEX/NODE`). When the item leaves
-- its queue its end is in `outcomes` under `+TOKEN`, until all dependents know it. `handovers_told` has when it was last announced, under
-- `+TOKEN`. `awaited` in `meta` is set once anybody has waited.
-- CALL: made = {}
local awaited = {MARK = '+', TOKEN = 't', REFERENCE = 'r'}

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

function awaited.add(position, reference)
  if not call.partition_before.awaited then
    partition.turn_on('replies')
    partition.turn_on('awaited')
  end
  local token = awaited.token(position)
  redis.call('HSET', key.replies, awaited.MARK .. position, token)
  redis.call('ZADD', key.awaited, 0, by_token(token, reference), 0, by_reference(reference, token))
end

function awaited.remove(token, reference)
  redis.call('ZREM', key.awaited, by_token(token, reference), by_reference(reference, token))
end

-- A later version of an item takes its place.
function awaited.pass_on(position, successor)
  local token = redis.call('HGET', key.replies, awaited.MARK .. position)
  if not token then return end
  redis.call('HDEL', key.replies, awaited.MARK .. position)
  redis.call('HSET', key.replies, awaited.MARK .. successor, token)
end

local function tell(token)
  call.seldom_any = true
  redis.call('ZADD', key.handovers_told, call.partition_stamp, awaited.MARK .. token)
  call.awaited_made[#call.awaited_made + 1] = {'dependency', awaited.MARK .. token}
end

-- An item has left the queue.
function awaited.ended(position, item, state, reason, result)
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
