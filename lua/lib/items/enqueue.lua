-- Publishes an item: checks for a repeated id (X1) and for room (P17, PX4), and stores it.
-- CALL: known = nil, count = nil
local enqueue = {}

function enqueue.prepare(rows)
  local ids, named, places = {}, {}, {}
  for i = 1, #rows do
    if rows[i].item ~= '' then ids[#ids + 1] = rows[i].item end
  end
  -- Kept entries of finished items do not count.
  call.enqueue_known, call.enqueue_count = {}, redis.call('XLEN', key.log) - call.partition_kept
  if #ids == 0 then return end
  local found = items.positions_of(ids)
  for i = 1, #ids do
    if found[i] then named[#named + 1], places[#places + 1] = ids[i], found[i] end
  end
  local flying = inflight.get_many(places)
  for i = 1, #named do
    local id, position, flight = named[i], places[i], flying[i]
    if flight and flight.item == id then
      call.enqueue_known[id] = {position = position, flight = flight}
    elseif not flight then
      call.enqueue_known[id] = {position = position, asked = true}
    end
  end
end

-- Returns the present item with an id. Read only when its row is reached: whether an item waits is read with its payload.
function enqueue.find(id)
  local known = call.enqueue_known[id]
  if known and known.asked then
    known.asked = nil
    if not items.waiting(known.position, id) then call.enqueue_known[id] = nil end
  end
  return call.enqueue_known[id]
end

local function is_repeat(row)
  if dedupe.has_seen(row) or dedupe.by_item_id(row) and enqueue.find(row.item) then return true end
  -- A new version could not wait: the item may be locked, or have waited already.
  return row.parents and not call.partition_options.log_only and enqueue.find(row.item)
end

-- Returns what the frontend of an item that waits for others has to know: where it waits, and for what.
function enqueue.describe_dependent(position, text)
  return text and {arg.number, position, text} or {arg.number}
end

-- Reads what a publish asks for. Returns the answer to one that repeats a stored one, nil to others.
function enqueue.answer_repeat(row)
  if row.hints ~= '' then scheduling.read_request(row) end
  if not is_repeat(row) then return nil end
  local position = row.parents and items.positions_of({row.item})[1]
  return {'duplicate', row.item, dedupe.differs(row) and 1 or row.parents and 0,
    row.parents and enqueue.describe_dependent(position, position and dependents.text(position))}
end

-- The service may give this id to a later item, and two items of one name could not be told apart (P33).
function enqueue.is_future_id(row)
  local position = positions.of_item_id(row.item)
  return position and positions.split(position) >= call.partition_now and positions.after(position, call.partition_tail)
end

function enqueue.room()
  local limit = tonumber(arg.max_items)
  if call.enqueue_count < limit then return true end
  -- Versions of one item are several entries: counted exactly only when it matters.
  local versions = redis.call('HLEN', key.replaced) + redis.call('HLEN', key.successors)
  if redis.call('XLEN', key.log) - call.partition_kept - versions < limit then return true end
  local dead_letter = arg.node_full == 'dead-letter-oldest'
  if arg.node_full == 'reject' or (dead_letter and not call.partition_options.dead_letters) then return false end
  local oldest = ready_queue.take_lowest()
  if not oldest then return false end
  call.enqueue_known[items.name(oldest.position, oldest)] = nil
  if dead_letter then
    outbox_items.start(oldest.position, oldest, oldest.past.attempts - oldest.past.untried, '', 'node-full')
  else
    items.drop(oldest.position, oldest)
    group_order.remove(oldest.position)
  end
  outcomes.note_end(oldest.position, items.name(oldest.position, oldest), 'dead', 'node-full', '')
  write_buffer.flush()
  return true
end

function enqueue.append(row)
  local position = log_entries.append(row, '')
  if row.hints ~= '' then
    partition.turn_on('hinted')
    scheduling.add(position, row)
  end
  if row.reply then outcomes.ask(position, row.reply, row.item) end
  row.position = position
  if row.parents then dependents.add(position, row.parents) end
  call.enqueue_count = call.enqueue_count + 1
  dedupe.remember(row)
  if call.partition_options.log_only then
    -- Entries of a log never wait: each reader has its own position.
    partition.move_cursor(position)
    retention.keep(position, #row.body)
  end
  if row.item == '' then return positions.item_id(position) end
  call.enqueue_known[row.item] = {position = position}
  write_buffer.add('HSET', key.index, row.item, position)
  return row.item
end

-- Replaces a waiting item in place; it starts anew, and with another priority it moves. A locked item gets a successor, which waits.
function enqueue.replace(row)
  local known = call.enqueue_known[row.item]
  if row.hints ~= '' then partition.turn_on('hinted') end
  if call.partition_before.hinted and not known.flight and not expiry.replace(known.position, row) then
    call.enqueue_count = call.enqueue_count - 1
    enqueue.append(row)
    outcomes.pass_on(known.position, call.enqueue_known[row.item].position)
    return
  end
  dedupe.remember(row)
  local beside = known.flight and key.successors or key.replaced
  local earlier = redis.call('HGET', beside, known.position)
  if earlier then
    redis.call('XDEL', key.log, earlier)
    partition.count_removed(1)
  end
  local log_id = log_entries.append(row, known.position)
  rare_keys.write('HSET', beside, known.position, log_id)
  if row.reply then outcomes.ask(known.flight and log_id or known.position, row.reply, row.item) end
  if known.flight and earlier then outcomes.pass_on(earlier, log_id) end
  if not known.flight then
    redis.call('HDEL', key.history, known.position)
    -- Selectors were matched against the old payload.
    if call.partition_before.selects and skipped_items.contains(known.position) then
      skipped_items.remove(known.position)
      redis.call('ZADD', scheduling.place(known.position))
    end
  end
end
