-- The ends of items whose publishers asked for a reply. `replies` has the asking JID of each such item. When the item leaves the queue its
-- outcome is in `outbox_records` until it was sent. `results` keeps it readable under the item's id for as long as the node says
-- (`result_ms`), and while all results take no more than KEPT bytes: `results` in `meta` counts them. `replies`
-- there is set once somebody has asked.
local outcomes = {FORGET = 200, KEPT = 67108864}

-- Removes results and returns how many bytes are left.
function outcomes.remove(items)
  local bytes, lines = 0, redis.call('HMGET', key.results, unpack(items))
  for _, line in ipairs(lines) do bytes = bytes + (line and #line or 0) end
  redis.call('ZREM', key.result_expiry, unpack(items))
  redis.call('HDEL', key.results, unpack(items))
  local left = redis.call('HINCRBY', key.meta, 'results', string.format('%d', -bytes))
  if left > 0 then return left end
  -- Results that an earlier version has kept were not counted.
  redis.call('HDEL', key.meta, 'results')
  return 0
end

-- Records who is told of the end of the item at a position; the end of an earlier item of its id, if it has one, is not kept any longer.
function outcomes.ask(position, jid, item)
  partition.turn_on('replies')
  redis.call('HSET', key.replies, position, jid)
  if item ~= '' and redis.call('HEXISTS', key.results, item) == 1 then outcomes.remove({item}) end
end

-- Whether anybody wants to know the end of an item: its publisher, or items that wait for it.
function outcomes.are_wanted(position)
  if not call.partition_before.replies then return false end
  local asked = redis.call('HMGET', key.replies, position, awaited.MARK .. position)
  return asked[1] or asked[2]
end

-- A later version of an item takes its place: whoever asked is told of that one, unless somebody has asked about it.
function outcomes.pass_on(position, successor)
  if call.partition_before.awaited then awaited.pass_on(position, successor) end
  local jid = call.partition_before.replies and redis.call('HGET', key.replies, position)
  if not jid then return end
  redis.call('HDEL', key.replies, position)
  if redis.call('HEXISTS', key.replies, successor) == 0 then redis.call('HSET', key.replies, successor, jid) end
end

-- Removes results that have expired: two for each new one, so there are never more than the valid ones.
function outcomes.forget(most)
  local old = redis.call('ZRANGEBYSCORE', key.result_expiry, '-inf', call.partition_now, 'LIMIT', 0, most)
  if #old > 0 then outcomes.remove(old) end
end

-- Keeps a result; those that would expire first make room for it.
local function store(item, line, keep_ms)
  outcomes.forget(2)
  if redis.call('HEXISTS', key.results, item) == 1 then outcomes.remove({item}) end
  local bytes = redis.call('HINCRBY', key.meta, 'results', #line)
  while bytes > outcomes.KEPT do
    local old = redis.call('ZRANGE', key.result_expiry, 0, 9)
    bytes = #old > 0 and outcomes.remove(old) or 0
  end
  redis.call('HSET', key.results, item, line)
  redis.call('ZADD', key.result_expiry, string.format('%.0f', call.partition_now + keep_ms), item)
end

-- Returns the end of an item that the node keeps, or nil.
function outcomes.get(item)
  local line = redis.call('HGET', key.results, item)
  local valid = line and tonumber(redis.call('ZSCORE', key.result_expiry, item) or 0) > call.partition_now
  return valid and line or nil
end

-- An item has left the queue: acknowledged (with the worker's result or ''), dead, cancelled or expired.
function outcomes.note_end(position, item, state, reason, result)
  if call.partition_before.awaited then awaited.note_end(position, item, state, reason, result) end
  local jid = call.partition_before.replies and redis.call('HGET', key.replies, position)
  if not jid then return end
  redis.call('HDEL', key.replies, position)
  local line = outcome_record.write(state, jid, item, reason, result)
  local keep_ms = call.partition_options.result_ms
  if keep_ms > 0 then store(item, line, keep_ms) end
  if string.sub(jid, 1, 1) == outcome_record.LOOKS then return end
  local entry = 'reply/' .. position
  redis.call('HSET', key.outbox_records, entry, line)
  outbox.put(entry)
end
