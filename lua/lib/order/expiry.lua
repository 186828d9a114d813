-- Items that are delayed, and items whose time to live is over: these expire and are not handed out any more. An item in flight may still
-- be acknowledged.
-- CALL: perished = 0, bytes = 0, more = false
-- Bounded by count and by bytes: an entry is read with its payload. `perished` and `bytes` count expired items of this call.
local expiry = {LIMIT = 200, BYTES = 1048576}

-- Writes the journal record of an attempt that took no time.
local function expire(position, entry, attempts)
  local line = inflight.line(inflight.NOBODY, '0', '0', string.format('%d', attempts + 1), '0', entry.log_id, call.partition_stamp,
    #entry.body, inflight.holder(''), items.name(position, entry))
  journal.add('perished', {line = line, named = call.partition_before.journal and journal.find_named(entry)}, '')
  items.drop(position, entry)
  group_order.remove(position)
  outcomes.note_end(position, items.name(position, entry), 'expired', '', '')
  call.expiry_perished = call.expiry_perished + 1
end

-- Expires the next item if it is due; returns whether it did. The next flush removes it.
function expiry.expire_if_due(position, entry, attempts)
  local at = scheduling.of(entry).ends
  if at == 0 or at > call.partition_now then return false end
  expire(position, entry, attempts)
  return true
end

-- Expires an item that came back, instead of making it wait again, if it is due; returns whether it did.
function expiry.expire_or_wait(flight, entry, attempts)
  if expiry.expire_if_due(flight.position, entry, attempts) then return true end
  scheduling.start_expiry(flight.position, entry)
  return false
end

-- Expires items that are due; `more` says that a bound has left some.
function expiry.sweep()
  local over = redis.call('ZRANGEBYSCORE', key.expirations, '-inf', call.partition_now, 'LIMIT', 0, expiry.LIMIT)
  call.expiry_more = #over == expiry.LIMIT
  for _, position in ipairs(over) do
    if call.expiry_bytes >= expiry.BYTES then
      call.expiry_more = true
      break
    end
    local entry = log_entries.current(position)
    if entry then
      call.expiry_bytes = call.expiry_bytes + #entry.body
      expire(position, entry, attempt_history.of(position).attempts)
    else
      -- Somebody has removed the entry with redis-cli.
      scheduling.remove(position)
    end
  end
  write_buffer.flush()
end

-- Whether the cursor will still reach an item: not one with another priority or with parents, nor a version that became an item of its own.
function expiry.is_past_cursor(position)
  if not positions.after(position, call.partition_cursor) then return false end
  local first = log_entries.get(position)
  call.expiry_bytes = call.expiry_bytes + (first and #first.body or 0)
  return first and not first.at and not scheduling.of(first).beside
end

-- Lets an item that the queue has reached wait on if it is delayed; returns whether it is.
function expiry.delay(position, entry)
  if not scheduling.is_delayed(entry) then return false end
  rare_keys.write('ZADD', key.delayed, scheduling.of(entry).after, position)
  if call.partition_before.keyed then key_limits.pass(position) end
  return true
end

-- Whether the next item may go out: not if it has expired or is delayed, nor after another of its group.
function expiry.may_go_out(position, group, entry, past)
  -- An item that does not go out counts as skipped, so that a call skips a bounded number.
  budget.skip(1)
  -- The item may be here before it was moved out of `delayed`.
  if scheduling.of(entry).after > 0 then redis.call('ZREM', key.delayed, position) end
  if expiry.expire_if_due(position, entry, past.attempts) or not group_order.may_go_out(position, group) then return false end
  if expiry.delay(position, entry) then return false end
  budget.skip(-1)
  return true
end

-- Replaces the delay, priority and expiry of a waiting item; a delay that a worker asked for stays. With another priority the old item is
-- dropped, and false is returned; so is an item that waits for others, since its new version does not.
function expiry.replace(position, row)
  -- The same batch may have published it.
  write_buffer.flush()
  local before = log_entries.current(position)
  if scheduling.rank(position) ~= scheduling.of(row).rank or dependents.text(position) then
    items.drop(position, before)
    group_order.remove(position)
    write_buffer.flush()
    return false
  end
  local was = scheduling.of(before).after
  scheduling.stop_expiry(position, before)
  write_buffer.flush()
  scheduling.start_expiry(position, row)
  if scheduling.is_delayed(row) then
    if call.partition_before.fair_at then fair_order.remove(position, before) end
    redis.call('ZREM', key.ready, position)
    scheduling.add(position, row)
    if call.partition_before.keyed then key_limits.pass(position) end
  elseif was > call.partition_now and tonumber(redis.call('ZSCORE', key.delayed, position) or 0) == was then
    redis.call('ZREM', key.delayed, position)
    if not expiry.is_past_cursor(position) then redis.call('ZADD', scheduling.place(position)) end
  end
  write_buffer.flush()
  return true
end
