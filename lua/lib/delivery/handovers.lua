-- Items on their way to another node: dead letters, and items that an owner moves. They stay here until `end_handover` reports their
-- arrival, so a crash in between repeats the hand-over and loses nothing. `handovers_told` has when each was last reported. Reports have
-- no payload: the frontend that does the hand-over reads it with `read_handovers`.
-- CALL: made = {}
local handovers = {LIMIT = 200}

local function tell(position, jid, note)
  call.rare_keys_any = true
  redis.call('ZADD', key.handovers_told, call.partition_stamp, position)
  call.handovers_made[#call.handovers_made + 1] = {position, string.sub(jid, 1, 1) == '>' and string.sub(jid, 2) or '', note}
end

-- The item leaves the queue: from now on its id is free for a new item. The history of its attempts stays until it has arrived.
function handovers.start(position, entry, attempts, jid, reason)
  write_buffer.add('HSET', key.handovers, position, handover_record.write(attempts, jid, '', reason))
  if entry.item ~= '' then write_buffer.add('HDEL', key.index, entry.item) end
  if call.partition_hinted then scheduling.remove(position) end
  group_order.remove(position)
  tell(position, jid, '')
end

-- Reports hand-overs, and outcomes, that have not arrived again, the longest unreported first: those that are due, and, after another hand-over has
-- arrived, all that were last reported before `before` (ms).
function handovers.resume(before)
  local upto = math.max(call.partition_now - next_due.RETRY_MS, before - 1)
  if not rare_keys.any() then return end
  local found = redis.call('ZRANGEBYSCORE', key.handovers_told, '-inf', string.format('%.0f', upto), 'LIMIT', 0, handovers.LIMIT)
  local lines = #found > 0 and redis.call('HMGET', key.handovers, unpack(found)) or {}
  for i, position in ipairs(found) do
    local mark = string.sub(position, 1, 1)
    if mark == outcomes.MARK then
      outcomes.resume(position)
    elseif mark == awaited.MARK then
      awaited.resume(position)
    elseif mark == awaited.CHECK then
      awaited.check()
    elseif mark == dependents.MARK then
      dependents.resume(position)
    elseif lines[i] then
      local _, jid, note = handover_record.read(lines[i])
      tell(position, jid, note)
    else
      redis.call('ZREM', key.handovers_told, position)
    end
  end
end
