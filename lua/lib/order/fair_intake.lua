-- Gives waiting items their places in the fair order of their node: new ones of the log, and those that came back or are ready now.
-- CALL: behind = false
-- `behind` says that the budget has left some without a place.
local fair_intake = {CHUNK = 100}

-- Adds items of other indexes. Only somebody with redis-cli removes an entry of a waiting item.
local function add_all(places)
  for _, position in ipairs(places) do
    local entry = log_entries.get(position)
    if entry then fair_order.add(position, entry) else redis.call('ZREM', key.ready, position) end
  end
end

-- Adds the next items of the log; the cursor passes over versions, and over items of other priorities or with parents, which are elsewhere.
-- A delayed item is added when its delay is over. In order it delays those behind it in its group, so it gets its place now.
local function add_new(found)
  for _, entry in ipairs(found) do
    local position = entry.log_id
    partition.move_cursor(position)
    if not (entry.at or entry.hints ~= '' and scheduling.of(entry).beside) then
      local replacement = log_entries.replacement(position)
      local present = replacement and log_entries.get(replacement) or entry
      if present.hints == '' or call.partition_options.ordered or not expiry.delay(position, present) then fair_order.add(position, entry) end
    end
  end
end

-- Adds up to `count` items, first those that came back; returns whether there may be more.
local function add_some(count)
  local back = redis.call('ZRANGEBYSCORE', key.ready, 0, '+inf', 'LIMIT', 0, count)
  add_all(back)
  if #back > 0 then return true end
  local ranked = call.partition_before.hinted and scheduling.take(count, 0, scheduling.LAST) or {}
  add_all(ranked)
  if #ranked > 0 then return true end
  if call.partition_cursor == call.partition_tail then return false end
  local found, ended = log_entries.after(call.partition_cursor, count)
  add_new(found)
  if #found == 0 and ended then partition.move_cursor(call.partition_tail) end
  return true
end

-- Runs within half of a call's budget: the other half is for handing out.
function fair_intake.run()
  if not call.partition_before.fair_at then partition.put('fair_at', '0') end
  local most, more = math.min(budget.WORK, call.budget_spent + budget.WORK / 2), true
  while more and call.budget_spent < most do
    more = add_some(log_entries.fit(fair_intake.CHUNK))
    write_buffer.flush()
  end
  call.fair_intake_behind = more
end
