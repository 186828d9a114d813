-- Hands waiting items to subscribers with free credit. Every operation that can make this possible runs it.
-- CALL: owed = false
-- Bounded by count and by bytes: a reply is kept in memory here, in the frontend, and in the XMPP server. `owed`: a caller that cannot send has left items to subscribers with credit.
local dispatch = {LIMIT = 200, ROUND = 8, BYTES = 1048576}

-- Returns the next subscriber for an item: the least recently served, but not the last holder while another has credit (Q30).
local function pick(queue, entry)
  if entry.to then return entry.to end
  local first = queue.first
  if queue[first].subid == entry.past.holders[1] and queue[first + 1] then
    queue[first], queue[first + 1] = queue[first + 1], queue[first]
  end
  queue.first = first + 1
  return queue[first]
end

-- Returns the token and the number of the attempt.
function dispatch.lock(entry, subscriber, frontend, deadline)
  local token, attempt, position = partition.next_number(), entry.past.attempts + 1, entry.position
  budget.spend(1)
  local text = string.format('%d', token)
  entry.name = entry.item ~= '' and entry.item or positions.item_id(position)
  if entry.hints ~= '' then scheduling.stop_expiry(position, entry) end
  subscriber.holder = subscriber.holder or inflight.holder(subscriber.jid)
  -- Not `..`, which writes a number in twice the time.
  write_buffer.add('HSET', key.inflight, position, inflight.line(frontend, text, text,
    attempt == 1 and '1' or string.format('%d', attempt), subscriber.subid, entry.log_id, call.partition_stamp,
    string.format('%d', #entry.body), subscriber.holder, entry.name))
  if entry.group then key_limits.lock(entry) end
  write_buffer.add('ZADD', key.lock_deadlines, deadline, position)
  write_buffer.add('ZADD', key.locks_by_subscriber, subscriber.subid, held_locks.member(text, position))
  if subscriber.references then references.note(position, subscriber) end
  subscriber.held, subscriber.served = subscriber.held + 1, text
  return token, attempt
end

local function deliver(entry, subscriber, deliveries)
  local position = entry.position
  local token, attempt = dispatch.lock(entry, subscriber, arg.frontend, retry_schedule.begin(position, subscriber.qos))
  local untried, after = entry.past.untried, entry.hints ~= '' and scheduling.of(entry).after or 0
  delivery_row.add(deliveries, subscriber.jid, position, entry.name, token, attempt - untried, call.partition_deadline, entry.by,
    entry.body, token, subscriptions.sending(subscriber), entry.key,
    delivery_row.about(references.whose(subscriber.references and subscriber, subscriber.subid), after, outcomes.are_wanted(position), untried))
end

local function assign(items, queue, deliveries)
  queue.first = 1
  for i = 1, #items do
    local subscriber = pick(queue, items[i])
    deliver(items[i], subscriber, deliveries)
    if subscriber.held < subscriber.limit then queue[#queue + 1] = subscriber end
  end
  for i = 1, #queue do
    local subscriber = queue[i]
    -- A collection keeps the turns of those with references.
    if subscriber.served and not subscriber.references then
      if subscriber.held < subscriber.limit then
        write_buffer.add('ZADD', key.ready_subscribers, subscriber.served, subscriber.subid)
      else
        write_buffer.add('ZREM', key.ready_subscribers, subscriber.subid)
        write_buffer.add('ZADD', key.idle_subscribers, subscriber.served, subscriber.subid)
      end
      subscriber.served = nil
    end
  end
  write_buffer.flush()
end

-- Returns how many items the next round may read: after the first round by the size of earlier items, so that no round goes far beyond
-- the bound of bytes.
function dispatch.most(made, bytes)
  if made == 0 then return dispatch.ROUND end
  return math.min(dispatch.LIMIT - made, math.ceil((dispatch.BYTES - bytes) * made / math.max(bytes, 1)))
end

-- Takes items and returns them with the subscribers that may get them, or nil without credit. The third value is all the credit there is,
-- if that is known.
local function take(want)
  if call.partition_before.selects and not skipped_items.finished() then return matching.take(want, credit.candidates) end
  -- One subscriber more than items, so that the last holder of an item can be avoided.
  local queue, room = credit.candidates(want + 1)
  if room == 0 then return nil end
  -- If there are fewer than requested, these are all.
  return ready_queue.take(math.min(want, room)), queue, #queue <= want and room
end

-- Whether one command shows that nothing waits.
local function is_empty()
  local elsewhere = call.partition_before.selects or call.partition_before.hinted or call.partition_cursor ~= call.partition_tail
  return not elsewhere and redis.call('EXISTS', key.ready) == 0
end

-- Whether a caller that sends could hand out more: then a frontend has to.
local function is_owed()
  if is_empty() then return false end
  if #credit.candidates(1) > 0 then return true end
  return call.partition_before.selects and credit.anybody() and ready_queue.waits_unexamined()
end

-- Returns the deliveries made, and whether more could be made at once: then the caller runs `sweep`. `hint` is the expected number of
-- items, and bounds the subscribers read in the first round.
function dispatch.run(hint)
  local deliveries, made, bytes = delivery_row.list(), 0, 0
  if budget.over() then return deliveries, 1 end
  ready_queue.promote()
  if call.partition_options.fair then fair_intake.run() end
  if call.partition_options.paused then return deliveries, 0 end
  key_limits.begin()
  local limited = call.partition_options.hand_out
  if not call.caller_sends then
    call.dispatch_owed = not call.caller_alone and not (limited and hand_out_limits.room() == 0) and is_owed()
    return deliveries, 0
  end
  while made < dispatch.LIMIT and bytes < dispatch.BYTES and not budget.over() do
    local want = math.min(math.max(hint, 1), dispatch.most(made, bytes))
    if limited then want = math.min(want, hand_out_limits.room()) end
    if want == 0 or is_empty() then return deliveries, 0 end
    local items, queue, room = take(want)
    if not items then return deliveries, 0 end
    if #items == 0 then
      local more = call.selection_more or call.budget_skipped >= budget.SKIPS or budget.over()
      return deliveries, more and 1 or 0
    end
    for i = 1, #items do bytes = bytes + #items[i].body end
    assign(items, queue, deliveries)
    if call.key_limits_applied then key_limits.go_on() end
    if limited then hand_out_limits.use(#items) end
    made = made + #items
    if room == #items then return deliveries, 0 end
    hint = hint * 2
  end
  return deliveries, 1
end

-- Takes up to `most` items by `take_some`, a few at a time, of about so many bytes of payload, and lets `give` lock them; returns how many
-- there were.
function dispatch.hand_out(most, most_bytes, take_some, give)
  local made, bytes, limited = 0, 0, call.partition_options.hand_out
  key_limits.begin()
  while made < most and bytes < most_bytes and not budget.over() do
    local want = math.min(most - made, dispatch.most(made, bytes))
    if limited then want = math.min(want, hand_out_limits.room()) end
    local items = want > 0 and take_some(want) or {}
    if #items == 0 then break end
    for i = 1, #items do bytes = bytes + #items[i].body end
    give(items)
    write_buffer.flush()
    if call.key_limits_applied then key_limits.go_on() end
    if limited then hand_out_limits.use(#items) end
    made = made + #items
    -- More can come only where the next of a key goes on.
    if #items < want and not call.key_limits_applied then break end
  end
  return made
end

-- Hands items to subscribers of collections that have references, one for each; adds the deliveries to those made before.
function dispatch.by_reference(subscribers, deliveries)
  local room = 0
  for _, each in ipairs(subscribers) do room = room + each.limit end
  dispatch.hand_out(room, dispatch.BYTES, ready_queue.take, function(items)
    local queue = {}
    for _, each in ipairs(subscribers) do
      if each.held < each.limit then queue[#queue + 1] = each end
    end
    assign(items, queue, deliveries)
  end)
end
