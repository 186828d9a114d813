-- Items whose end others wait for, their dependents, which may be in other partitions and nodes. `replies` has a token of each such item,
-- under `+POSITION`; `awaited` has who waits, by token and by reference (`INCARNATION/PARTITION/POSITION/INDEX/NODE`). When the item leaves
-- its queue its end is in `outbox_records` under `end/TOKEN` until all dependents know it, and the outbox gets an entry for each of them, a
-- page at a time: `end/TOKEN` is due while there are more, and `after/TOKEN` has the last one.
local awaited = {MARK = '+', TOKEN = 't', REFERENCE = 'r', PAGE = 50}

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

local function is_awaited(token)
  return range(awaited.TOKEN .. token, '', 1)[1] ~= nil
end

-- Returns the token that a reference waits for, or nil.
function awaited.find(reference)
  return range(awaited.REFERENCE .. reference, '', 1)[1]
end

-- Returns the token of an item: the position that it had when the first one waited.
function awaited.token(position)
  return redis.call('HGET', key.replies, awaited.MARK .. position) or position
end

function awaited.add(position, reference)
  partition.turn_on('replies')
  partition.turn_on('awaited')
  local token = awaited.token(position)
  redis.call('HSET', key.replies, awaited.MARK .. position, token)
  redis.call('ZADD', key.awaited, 0, by_token(token, reference), 0, by_reference(reference, token))
end

-- Returns references of those that wait for an item, at most a page.
function awaited.some(position)
  if not call.partition_before.awaited then return {} end
  return range(awaited.TOKEN .. awaited.token(position), '', awaited.PAGE)
end

-- Removes one that knows the end of an item, or is gone; and the end when all know it.
function awaited.remove(token, reference)
  redis.call('ZREM', key.awaited, by_token(token, reference), by_reference(reference, token))
  outbox.remove('child/' .. token .. '/' .. reference)
  if not is_awaited(token) then redis.call('HDEL', key.outbox_records, 'end/' .. token) end
end

-- A later version of an item takes its place.
function awaited.pass_on(position, successor)
  local token = redis.call('HGET', key.replies, awaited.MARK .. position)
  if not token then return end
  redis.call('HDEL', key.replies, awaited.MARK .. position)
  redis.call('HSET', key.replies, awaited.MARK .. successor, token)
end

-- Gives the next dependents of an item that has ended their entries.
function awaited.tell_some(token)
  local after = 'after/' .. token
  local found = range(awaited.TOKEN .. token, redis.call('HGET', key.outbox_records, after) or '', awaited.PAGE)
  budget.spend(#found / 4)
  for _, reference in ipairs(found) do outbox.put('child/' .. token .. '/' .. reference) end
  if #found == awaited.PAGE then
    redis.call('HSET', key.outbox_records, after, found[#found])
    outbox.put('end/' .. token)
  else
    redis.call('HDEL', key.outbox_records, after)
    outbox.remove('end/' .. token)
  end
end

-- An item has left the queue.
function awaited.note_end(position, item, state, reason, result)
  local token = redis.call('HGET', key.replies, awaited.MARK .. position)
  if not token then return end
  redis.call('HDEL', key.replies, awaited.MARK .. position)
  -- Those that waited may all be gone.
  if not is_awaited(token) then return end
  redis.call('HSET', key.outbox_records, 'end/' .. token, outcome_record.write(state, '', item, reason, result))
  awaited.tell_some(token)
end
