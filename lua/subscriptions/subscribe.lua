#!lua flags=allow-oom
-- Add subscriptions, or change their options. With `must` the subscription has to exist, and an empty `qos` or `batch` keeps the old
-- one, so that a log reader reads on. With `several` a JID may have more than one subscription, and gets a new one. A partition owner that subscribes
-- for shared use loses its partition. A subscription to a collection has a `scope`. A `selector` of `=` keeps the old one.
-- ARGV: now revision frontend number retry max_subscribers | subid jid credit qos batch must lease scope named several selector
-- RETURNS: ok stale gone deleted | ok(credit sending jid until_ms subid [scope selector]) not-subscribed
--   too-many-subscriptions([cause]) options-invalid([cause]) lease-over subid-required subid-invalid
local refusal = partition.load()
if refusal then return refusal end

-- Returns the subid that a row means, or nil and the refusal.
local function meant(row)
  if row.must == '1' then return subscription_ids.choose(row.subid, row.named) end
  if row.several == '' then return subscription_ids.existing(row.subid)[1] or row.subid end
  local another = subscription_ids.another(row.subid)
  return another, not another and {'too-many-subscriptions'} or nil
end

local function read_on(row, subscriber)
  if row.qos ~= '' and row.qos ~= 'unacknowledged' then return {'options-invalid'} end
  if selectors.is_requested(row) then return {'options-invalid', 'selector'} end
  subscriber.limit = tonumber(row.credit) or subscriber.limit
  subscriptions.put(subscriber)
  local reader = log_readers.get(row.subid)
  if reader then reader_window.save(reader, reader.position) end
  return {'ok', subscriber.limit, subscriber.qos, subscriber.jid, subscription_expiry.put(row.subid, row.lease), row.subid}
end

-- Stores what a subscription to a collection is for; returns it.
local function put_scope(row)
  if row.scope ~= '' then redis.call('HSET', key.scopes, row.subid, row.scope) end
  return call.partition_options.collects and redis.call('HGET', key.scopes, row.subid) or nil
end

-- An owner's credit ends with its ownership: a former owner begins anew.
local function work(row, subscriber)
  local before, total = subscriber or {}, tonumber(row.credit)
  local batch = row.batch ~= '' and row.batch or before.batch
  subscriber = {subid = row.subid, jid = before.jid or row.jid, limit = total or before.limit,
    bounces = total and 0 or before.bounces, qos = row.qos ~= '' and row.qos or before.qos, batch = batch ~= '1' and batch or nil}
  subscribing.put(subscriber, not before.jid)
  if row.selector ~= '=' then skipped_items.set_selector(row.subid, row.selector) end
  lock_end.touch(row.subid)
  local scope, line = put_scope(row), selectors.line(row.subid)
  return {'ok', subscriber.limit, subscriptions.sending(subscriber), subscriber.jid, subscription_expiry.put(row.subid, row.lease), row.subid,
    scope or line and '', line}
end

local results = {}
for i, row in ipairs(rows) do
  local subid, refused = meant(row)
  row.subid = subid or row.subid
  local known, owns = subid and subscriptions.get(subid), partition_owner.is(subid)
  if refused then
    results[i] = refused
  -- An owner of some of several partitions has a share of its credit in each.
  elseif row.must == '1' and owns and (call.partition_options.several or call.partition_options.collects) then
    results[i] = {'not-subscribed'}
  elseif not known and redis.call('HLEN', key.subscribers) >= tonumber(arg.max_subscribers) then
    results[i] = {'too-many-subscriptions'}
  elseif selectors.is_requested(row) and owns and row.must == '1' then
    results[i] = {'options-invalid', 'selector'}
  elseif selectors.is_requested(row) and not selectors.room(row.subid) then
    results[i] = {'too-many-subscriptions', 'selector'}
  elseif subscription_expiry.would_be_over(row.lease) then
    results[i] = {'lease-over'}
  elseif row.must == '1' and subscriptions.reads(known) then
    results[i] = read_on(row, known)
  else
    if owns and row.must == '1' then partition_owner.renew_when_seen(row.subid .. ' ' .. row.subid) else ownership_loss.end_of(row.subid, false) end
    results[i] = work(row, subscribing.find(row.subid))
  end
end
local reply = respond.make(results, dispatch.LIMIT)
reply[respond.DUE] = subscription_expiry.next(reply[respond.DUE])
return reply
