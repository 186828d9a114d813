-- What its time has not come for, and what its time to live is over for: that perishes, nobody is handed it any more. One in flight
-- may still be acknowledged.
-- CALL: perished = 0, bytes = 0, more = false
-- Bounded by count and by bytes: an entry is read with its payload. `perished` and `bytes` are how many and how much in this script.
local times = {LIMIT = 200, BYTES = 1048576}

-- The record is as that of an attempt which took no time.
local function perish(position, entry, attempts)
  local line = flights.line(flights.NOBODY, '0', '0', string.format('%d', attempts + 1), '0', entry.log_id, call.partition_stamp,
    #entry.body, flights.holder(''), items.name(position, entry))
  journal.closed('perished', {line = line}, '')
  items.drop(position, entry)
  ordering.done(position)
  call.times_perished = call.times_perished + 1
end

-- Whether an item that is next has perished instead; it goes with the next flush.
function times.over(position, entry, attempts)
  local at = hints.of(entry).ends
  if at == 0 or at > call.partition_now then return false end
  perish(position, entry, attempts)
  return true
end

-- Whether an item that nobody has had done with perishes instead of waiting again.
function times.back(flight, attempts)
  local entry = entries.get(flight.log_id)
  if times.over(flight.position, entry, attempts) then return true end
  hints.stay(flight.position, entry)
  return false
end

-- Lets those perish whose time is over; `more` says that a bound has left some of them.
function times.sweep()
  local over = redis.call('ZRANGEBYSCORE', key.ends, '-inf', call.partition_now, 'LIMIT', 0, times.LIMIT)
  call.times_more = #over == times.LIMIT
  for _, position in ipairs(over) do
    if call.times_bytes >= times.BYTES then
      call.times_more = true
      break
    end
    local entry = entries.current(position)
    if entry then
      call.times_bytes = call.times_bytes + #entry.body
      perish(position, entry, history.of(position).attempts)
    else
      -- A hand at redis-cli has removed it.
      hints.forget(position)
    end
  end
  writes.flush()
end

-- Whether the cursor is yet to bring an item: all but those of another priority, and versions that are items of their own.
function times.comes(position)
  if not positions.after(position, call.partition_cursor) then return false end
  local first = entries.get(position)
  call.times_bytes = call.times_bytes + (first and #first.body or 0)
  return first and not first.at and not hints.of(first).rank
end

-- Whether an item that is next goes out: not when its time is over or has yet to come, nor while another of its group is ahead.
function times.admits(position, group, entry, past)
  -- What does not go counts as passed over, lest a script go through any number of them.
  call.ordering_skipped = call.ordering_skipped + 1
  -- It may be here before what is due has been moved.
  if hints.of(entry).after > 0 then redis.call('ZREM', key.delayed, position) end
  if times.over(position, entry, past.attempts) or not ordering.admits(position, group) then return false end
  if hints.rests(entry) then
    redis.call('ZADD', key.delayed, hints.of(entry).after, position)
    return false
  end
  call.ordering_skipped = call.ordering_skipped - 1
  return true
end

-- An item that waits begins anew with the hints of what replaces it; a delay that a worker asked for stays. Places are within a rank:
-- with another one it goes, and false says so.
function times.anew(position, row)
  local before = entries.current(position)
  if hints.rank(position) ~= hints.of(row).rank then
    items.drop(position, before)
    ordering.done(position)
    writes.flush()
    return false
  end
  local was = hints.of(before).after
  hints.leave(position, before)
  writes.flush()
  hints.stay(position, row)
  if hints.rests(row) then
    redis.call('ZREM', key.ready, position)
    hints.enter(position, row)
  elseif was > call.partition_now and tonumber(redis.call('ZSCORE', key.delayed, position) or 0) == was then
    redis.call('ZREM', key.delayed, position)
    if not times.comes(position) then redis.call('ZADD', ordering.place(position)) end
  end
  writes.flush()
  return true
end
