-- Waiting items in order: those with a higher priority (`by_priority`), `ready` (items that left the FIFO order and may go out), the log
-- from the cursor on, and last those with a lower priority. In a node with a fair order all of them get a place in that.
-- CALL: more = false
-- `more` says that a bound has left due items.
local ready_queue = {DUE = 200, TURNS = 'turns'}

-- Expires items, and moves those whose delay is over from `delayed` to where they may go out.
function ready_queue.promote()
  if call.partition_before.hinted then expiry.sweep() end
  local more = call.partition_before.keyed and key_limits.promote() or call.expiry_more
  if not rare_keys.any() then
    call.ready_queue_more = more
    return
  end
  local due, moved = redis.call('ZRANGEBYSCORE', key.delayed, '-inf', call.partition_now, 'LIMIT', 0, ready_queue.DUE), 0
  while moved < #due and call.expiry_bytes < expiry.BYTES do
    moved = moved + 1
    if not (call.partition_before.hinted and expiry.is_past_cursor(due[moved])) then write_buffer.add('ZADD', scheduling.place(due[moved])) end
  end
  call.ready_queue_more = moved == ready_queue.DUE or moved < #due or more
  if moved > 0 then redis.call('ZREM', key.delayed, unpack(due, 1, moved)) end
  write_buffer.flush()
end

-- Whether items wait that may go out and were not skipped.
function ready_queue.waits_unexamined()
  return call.partition_cursor ~= call.partition_tail or redis.call('EXISTS', key.ready) == 1
    or call.partition_before.hinted and scheduling.has_ranks(0, scheduling.LAST)
end

-- Whether items wait that may go out, or only such that nobody selects.
function ready_queue.waits()
  return ready_queue.waits_unexamined() or call.partition_before.selects and skipped_items.after('', '', 1)[1] ~= nil
end

-- Whether the items taken so far have used up the budget.
local function spent(taken)
  return #taken > 0 and budget.over()
end

-- Whether the bounds of its key let an item go out; a selected item is asked for when it is chosen.
local function by_key(entry)
  return not call.key_limits_applied or call.partition_before.selects or key_limits.admits(entry)
end

-- Returns up to `count` positions from `ready`; with `first` and `last` those of these ranks from `by_priority`, and with TURNS as
-- `first` those that are next in a fair order.
local function positions_from(count, first, last)
  if first == ready_queue.TURNS then return fair_order.take(count) end
  if first then return scheduling.take(count, first, last) end
  return redis.call('ZRANGE', key.ready, 0, count - 1)
end

-- Takes items out of `ready` before they are looked at: one that is blocked then is ready again when its head, after it here, leaves.
local function leave_ready(out)
  for _, position in ipairs(call.partition_before.fair_at and out or {}) do
    local entry = log_entries.get(position)
    if entry then fair_order.remove(position, entry) end
  end
  redis.call('ZREM', key.ready, unpack(out))
end

-- Takes items from `ready`, or with `first` and `last` from where `positions_from` finds them.
local function from_ready(count, taken, first, last)
  while count > 0 and call.budget_skipped < budget.SKIPS and not spent(taken) do
    local most = log_entries.fit(count)
    local out = positions_from(most, first, last)
    local over = #out < most
    if #out > 0 and not first then leave_ready(out) end
    for _, position in ipairs(out) do
      local entry, past = log_entries.current(position), attempt_history.of(position)
      -- An item's group is that of its first version.
      local earliest = call.partition_options.ordered and entry and entry.log_id ~= position and log_entries.get(position) or entry
      local admits = entry and entry.hints ~= '' and expiry.may_go_out or group_order.may_go_out
      -- Only somebody with redis-cli removes an entry of a waiting item: skip it, and let the next of its group follow.
      if entry then
        entry.position, entry.past = position, past
      else
        group_order.remove(position)
        over = false
      end
      if entry and admits(position, earliest.key, entry, past) and by_key(entry) then
        taken[#taken + 1] = entry
        count = count - 1
      end
    end
    if over then return end
  end
end

local function from_log(count, taken)
  while count > 0 and call.partition_cursor ~= call.partition_tail and call.budget_skipped < budget.SKIPS and not spent(taken) do
    -- If many were skipped, read more at a time.
    local found, ended = log_entries.after(call.partition_cursor, math.max(count, call.budget_skipped))
    if #found == 0 and ended then partition.move_cursor(call.partition_tail) end
    for i = 1, #found do
      local entry, position = found[i], found[i].log_id
      partition.move_cursor(position)
      -- A version, or an item of `by_priority` or of `dependents`. Retention keeps those of finished items as well, so there may be any number.
      if entry.at or (entry.hints ~= '' and scheduling.of(entry).beside) then
        budget.skip(1)
      else
        local replacement, group = log_entries.replacement(position), entry.key
        entry = replacement and log_entries.get(replacement) or entry
        local admits = entry.hints ~= '' and expiry.may_go_out or group_order.may_go_out
        entry.position, entry.past = position, attempt_history.NONE
        if admits(position, group, entry, attempt_history.NONE) and by_key(entry) then
          taken[#taken + 1] = entry
          count = count - 1
          if count == 0 then break end
        end
      end
    end
  end
end

-- Takes up to `count` waiting items, as entries with their `position` and their `past`, except skipped ones.
function ready_queue.next(count)
  local taken = {}
  if call.partition_options.fair then fair_intake.run() end
  if call.partition_before.hinted then from_ready(count, taken, 0, scheduling.USUAL - 1) end
  if call.partition_before.fair_at then from_ready(count - #taken, taken, ready_queue.TURNS) end
  if call.partition_options.fair then return taken end
  from_ready(count - #taken, taken)
  from_log(count - #taken, taken)
  if call.partition_before.hinted and call.partition_cursor == call.partition_tail then
    from_ready(count - #taken, taken, scheduling.USUAL + 1, scheduling.LAST)
  end
  return taken
end

local function from_skipped(places, taken)
  for _, position in ipairs(places) do
    local entry, past = log_entries.current(position), attempt_history.of(position)
    skipped_items.remove(position)
    if entry and not (entry.hints ~= '' and expiry.expire_if_due(position, entry, past.attempts)) then
      entry.position, entry.past = position, past
      taken[#taken + 1] = entry
    end
  end
end

-- Takes skipped items too, and first; the caller locks or drops each of them.
function ready_queue.take(count)
  if not call.partition_before.selects then return ready_queue.next(count) end
  local taken, places = {}, nil
  repeat
    places = skipped_items.after('', '', log_entries.fit(count - #taken))
    from_skipped(places, taken)
  until #places == 0 or #taken == count or spent(taken)
  for _, entry in ipairs(ready_queue.next(count - #taken)) do taken[#taken + 1] = entry end
  return taken
end

-- Takes the oldest item of the lowest priority, whatever the fair order; returns nil for none. Of one priority the skipped ones are older.
function ready_queue.take_lowest()
  local last, first, taken = scheduling.LAST, 0, {}
  if not call.partition_before.hinted then last, first = scheduling.USUAL, scheduling.USUAL end
  for rank = last, first, -1 do
    local position = call.partition_before.selects and skipped_items.first(rank)
    if position and (scheduling.rank(position) or scheduling.USUAL) == rank then
      from_skipped({position}, taken)
    elseif rank == scheduling.USUAL then
      from_ready(1, taken)
      from_log(1 - #taken, taken)
    else
      from_ready(1, taken, rank, rank)
    end
    if taken[1] or rank == scheduling.USUAL and call.partition_cursor ~= call.partition_tail then return taken[1] end
  end
  return nil
end
