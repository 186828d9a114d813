-- The ends of items whose publishers asked for a reply. `replies` has the asking JID of each such item. When the item leaves the queue its
-- outcome is in `outcomes` until `end_outcomes` reports that it was sent, so a crash in between sends it again and loses nothing;
-- `handovers_told` has when it was last announced, under `=POSITION`. `results` keeps it readable under the item's id for as long as the
-- node says. `replies` in `meta` is set once somebody has asked.
-- CALL: made = {}, bytes = nil
local outcomes = {MARK = '=', BYTES = 1048576, FORGET = 200}

-- Records who is told of the end of the item at a position; the end of an earlier item of its id, if it has one, is not kept any longer.
function outcomes.ask(position, jid, item)
  if not call.partition_before.replies then
    partition.turn_on('replies')
    call.partition_before.replies = '1'
  end
  redis.call('HSET', key.replies, position, jid)
  if item ~= '' then
    redis.call('HDEL', key.results, item)
    redis.call('ZREM', key.result_expiry, item)
  end
end

-- A later version of an item takes its place: whoever asked is told of that one, unless somebody has asked about it.
function outcomes.pass_on(position, successor)
  local jid = call.partition_before.replies and redis.call('HGET', key.replies, position)
  if not jid then return end
  redis.call('HDEL', key.replies, position)
  if redis.call('HEXISTS', key.replies, successor) == 0 then redis.call('HSET', key.replies, successor, jid) end
end

-- A caller that cannot send leaves it to a frontend: the partition is due at once.
local function tell(position, line)
  call.seldom_any = true
  local due = call.caller_sends and call.partition_now or call.partition_now - next_due.RETRY_MS
  redis.call('ZADD', key.handovers_told, string.format('%.0f', due), outcomes.MARK .. position)
  if call.caller_sends then call.outcomes_made[#call.outcomes_made + 1] = {'outcome', position, line} end
end

-- Removes results that have expired: two for each new one, so there are never more than the valid ones.
function outcomes.forget(most)
  local old = redis.call('ZRANGEBYSCORE', key.result_expiry, '-inf', call.partition_now, 'LIMIT', 0, most)
  if #old == 0 then return end
  redis.call('ZREM', key.result_expiry, unpack(old))
  redis.call('HDEL', key.results, unpack(old))
end

-- An item has left the queue: acknowledged (with the worker's result or ''), dead, cancelled or expired.
function outcomes.ended(position, item, state, reason, result)
  local jid = call.partition_before.replies and redis.call('HGET', key.replies, position)
  if not jid then return end
  redis.call('HDEL', key.replies, position)
  local line = outcome_record.write(state, jid, item, reason, result)
  local keep_ms = call.partition_before.result_ms
  if keep_ms then
    outcomes.forget(2)
    redis.call('HSET', key.results, item, line)
    redis.call('ZADD', key.result_expiry, string.format('%.0f', call.partition_now + keep_ms), item)
  end
  if string.sub(jid, 1, 1) == outcome_record.LOOKS then return end
  redis.call('HSET', key.outcomes, position, line)
  tell(position, line)
end

-- Announces an outcome again that nobody has reported as sent. Bounded; the next sweep announces the rest.
function outcomes.resume(mark)
  local position = string.sub(mark, 2)
  local line = redis.call('HGET', key.outcomes, position)
  if not line then
    redis.call('ZREM', key.handovers_told, mark)
  elseif not call.caller_sends then
    call.seldom_any = true
    redis.call('ZADD', key.handovers_told, call.partition_stamp, mark)
  elseif (call.outcomes_bytes or 0) < outcomes.BYTES then
    call.outcomes_bytes = (call.outcomes_bytes or 0) + #line
    tell(position, line)
  end
end

-- Adds the announcements to a script's notices.
function outcomes.announce(notices)
  for _, made in ipairs(call.outcomes_made) do notices[#notices + 1] = made end
end
