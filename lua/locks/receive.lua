#!lua flags=allow-oom
-- Lock items for pull subscriptions, leases and links, until each holds `limit` here, and list what they hold, oldest locks first: those
-- after the token `after`, at most `most` each and about `max_bytes` of payload in all. A `limit` of `*` is the subscription's own credit;
-- with an empty one the caller only looks, and with `0` it asks whether there is something to take. Locks last `lock_ms`, or the node's
-- lock time. A subscription waits here for its `process` to be woken, if it names one, as soon as it could take more. A `lease`, which
-- only the first partition knows, must not have ended, and is extended by so many ms; `0` leaves it as it is. With it goes the `credit` of a
-- link, which changes without a call. A `selector` of `=` is the one that is known here. With `references` of a `collection` items are locked under these, one under each, until the queue's time `deadline`.
-- Returns the end of the lease, the items, whether there are more, how many the subscription holds here, its credit, its selector, about how
-- many more may go out to it if it asked that, whether it gets nothing because the partition has an owner, the present time, and the
-- references under which it has no lock.
-- ARGV: now revision frontend number retry most max_bytes | subid jid lease credit limit lock_ms after process selector references collection deadline
-- RETURNS: ok stale gone deleted | lease-over ok(until_ms items(item token attempt deadline_ms publisher body key published_ms untried reply [waited_ms])
--   more locks credit selector waits owner now_ms references)
local refusal = partition.load()
if refusal then return refusal end
local most, max_bytes = tonumber(arg.most), tonumber(arg.max_bytes)

-- Returns the references of a row under which there is no lock yet, the first one last.
local function unused(row)
  local names = {}
  for name in string.gmatch(row.references, '%S+') do
    if not references.position(name) then table.insert(names, 1, name) end
  end
  return names
end

-- Shows the credit of a link with its subscription.
local function show_credit(row, subscriber)
  local limit = tonumber(row.credit)
  if not (subscriber and limit) or subscriber.limit == limit then return end
  subscriber.limit = limit
  subscriptions.put(subscriber)
end

local function answer(row)
  local lasts, subscriber = receiving.renew_lease(row)
  if not lasts then return {'lease-over'} end
  if row.selector ~= '=' then skipped_items.set_selector(row.subid, row.selector) end
  show_credit(row, subscriber)
  local takes, open, names = row.limit ~= '', not (call.partition_options.paused or partition_owner.get()), unused(row)
  -- Whether it could take more.
  local room, made, waits = takes, 0, 0
  if takes and open and row.limit ~= '0' then room, made = receiving.take(row, subscriber, names, most, max_bytes) end
  if row.limit == '0' and open and waiters.has_match(row.subid) then waits = math.max(1, asking.wanted()) end
  if row.process == '' then
    waiters.remove(row.subid)
  elseif room and waits == 0 then
    waiters.note(row.subid, row.process, made > 0)
  else
    waiters.note_full(row.subid, row.process)
  end
  local found, more = receiving.list(row, most, max_bytes)
  return receiving.answer(row, found, more, subscriber, waits, names)
end

local reply = respond.make(nil, dispatch.LIMIT, function() return budget.each(rows, answer) end)
reply[respond.DUE] = subscription_expiry.next(reply[respond.DUE])
return reply
