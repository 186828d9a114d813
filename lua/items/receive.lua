#!lua flags=allow-oom
-- Lock items for pull subscriptions, leases and links, until each holds `limit` here, and list what they hold, oldest locks first: those
-- after the token `after`, at most `most` each and about `max_bytes` of payload in all. A `limit` of `*` is the subscription's own credit;
-- with an empty one the caller only looks, and with `0` it asks whether there is something to take. Locks last `lock_ms`, or the node's
-- lock time. A subscription waits here for its `process` to be woken, if it names one, as soon as it could take more. A `lease`, which only the
-- first partition knows, must not have ended, and is extended by so many ms; `0` leaves it as it is. A `selector` of `=` is the one that
-- is known here. With `references` of a `collection` items are locked under these, one under each, until the queue's time `deadline`.
-- Returns the end of the lease, the items, whether there are more, how many the subscription holds here, its credit, its selector, about how
-- many more may go out to it if it asked that, whether it gets nothing because the partition has an owner, the present time, and the
-- references under which it has no lock.
-- ARGV: now revision frontend number retry most max_bytes | subid jid lease limit lock_ms after process selector references collection deadline
-- RETURNS: ok stale gone deleted | ok lease-over
local refusal = partition.load()
if refusal then return refusal end
-- The waits of items that are locked here for the first time are told in ms after the attempt; -1 stands for a later attempt.
local bytes, fresh = 0, {}

-- Renews the lease of a subscription that asks for it. Returns whether the subscription lasts, and it, where it is known.
local function renew_lease(row)
  if row.lease == '' then return true, nil end
  local subscriber = subscriptions.get(row.subid)
  if not subscriber or not subscriptions.pulls(subscriber) or subscription_expiry.has_ended(row.subid) then return false end
  if row.lease ~= '0' then subscription_expiry.put(row.subid, '+' .. row.lease) end
  return true, subscriber
end

local function take_next(subscriber, want)
  if call.partition_selects and not skipped_items.finished() then
    return matching.take(want, function() return {subscriber} end) or {}
  end
  return ready_queue.take(want)
end

-- Takes up to `want` items. What the subscriber gave back itself stays for another that was woken for it.
local function take(subscriber, want)
  if not waiters.is_behind(subscriber.subid) then return take_next(subscriber, want) end
  local kept, left, before = {}, {}, nil
  repeat
    before = #left
    for _, entry in ipairs(take_next(subscriber, want - #kept)) do
      local into = entry.past.holders[1] == subscriber.subid and left or kept
      into[#into + 1] = entry
    end
  until #left == before or #kept == want or budget.over()
  for _, entry in ipairs(left) do
    if entry.group then key_limits.put_back(entry) end
    write_buffer.add('ZADD', scheduling.place(entry.position))
  end
  write_buffer.flush()
  return kept
end

local function lock(entry, subscriber, deadline)
  local token, attempt = dispatch.lock(entry, subscriber, inflight.NOBODY, deadline)
  local published = positions.split(entry.position)
  fresh[token] = attempt == 1 and math.max(0, call.partition_now - math.max(published, scheduling.of(entry).after)) or -1
  bytes = bytes + #entry.body
end

-- Returns the references of a row under which there is no lock yet, the first one last.
local function unused(row)
  local names = {}
  for name in string.gmatch(row.references, '%S+') do
    if not references.position(name) then table.insert(names, 1, name) end
  end
  return names
end

-- Returns whether the subscriber could take more, and how many items it took; each takes one of the `names` of references, if there are any.
local function receive(row, subscriber, names)
  local held = credit.lock_count(row.subid)
  local limit = row.limit == '*' and subscriber.limit or tonumber(row.limit)
  if row.references ~= '' then limit = held + (references.is_late(row.deadline) and 0 or #names) end
  local deadline = row.lock_ms == '' and call.partition_deadline or call.partition_now + tonumber(row.lock_ms)
  subscriber = {subid = row.subid, jid = row.jid, limit = limit, held = held, qos = 'pulled', collection = row.collection, whose = '',
    references = row.references ~= '' and names or nil}
  local most = math.min(limit - held, tonumber(arg.most))
  local made = dispatch.hand_out(most, tonumber(arg.max_bytes) - bytes, function(want) return take(subscriber, want) end, function(items)
    for _, entry in ipairs(items) do lock(entry, subscriber, string.format('%d', deadline)) end
  end)
  return subscriber.held < limit, made
end

-- The credit of a link, which changes without a script, is shown with the subscription.
local function show_credit(row, subscriber)
  local limit = tonumber(row.limit)
  if not (subscriber and limit and limit > 0) or subscriber.limit == limit then return end
  subscriber.limit = limit
  subscriptions.put(subscriber)
end

local function describe(flight, entry)
  local attempt, token = tonumber(flight.attempt), tonumber(flight.token)
  local tries = attempt_history.count(flight.position, attempt)
  return {flight.item, token, tries, tonumber(redis.call('ZSCORE', key.lock_deadlines, flight.position) or 0), entry.by, entry.body,
    entry.key, tonumber((positions.split(entry.log_id))), attempt - tries, outcomes.are_wanted(flight.position) and 1 or 0, fresh[token]}
end

-- Returns what a subscription holds, and 1 if there is more.
local function list(row)
  local found, size = {}, 0
  local places = held_locks.after(row.subid, tonumber(row.after), tonumber(arg.most) + 1)
  call.budget_spent = call.budget_spent + 0.6 * #places
  for i, flight in ipairs(inflight.get_many(places)) do
    local entry = flight and i <= tonumber(arg.most) and size < tonumber(arg.max_bytes) and log_entries.get(flight.log_id)
    if flight and not entry then return found, 1 end
    if entry then
      size = size + #entry.body
      found[#found + 1] = describe(flight, entry)
    end
  end
  return found, 0
end

local function answer(row)
  local lasts, subscriber = renew_lease(row)
  if not lasts then return {'lease-over'} end
  if row.selector ~= '=' then skipped_items.set_selector(row.subid, row.selector) end
  show_credit(row, subscriber)
  local takes, open, names = row.limit ~= '', not (call.partition_paused or partition_owner.get()), unused(row)
  -- Whether it could take more.
  local room, made, waits = takes, 0, 0
  if takes and open and row.limit ~= '0' then room, made = receive(row, subscriber, names) end
  if row.limit == '0' and open and waiters.has_match(row.subid) then waits = math.max(1, asking.wanted()) end
  if row.process == '' then
    waiters.remove(row.subid)
  elseif room and waits == 0 then
    waiters.note(row.subid, row.process, made > 0)
  else
    waiters.note_full(row.subid, row.process)
  end
  local found, more = list(row)
  return {'ok', subscription_expiry.of(row.subid), found, more, credit.lock_count(row.subid), subscriber and subscriber.limit or 0,
    selectors.line(row.subid) or '', waits, partition_owner.get() and 1 or 0, call.partition_now, table.concat(names, ' ')}
end

local reply = respond.make(nil, dispatch.LIMIT, function() return budget.each(rows, answer) end)
reply[respond.DUE] = subscription_expiry.next(reply[respond.DUE])
return reply
