import type * as t from './types';

// The calls that the dashboard makes: request and answer of each. A name is its path below /rpc/dex.v1.
export interface Unary {
  'FineTuningService/CreateFineTuningJob': [t.CreateFineTuningJobRequest, t.FineTuningJob];
  'FineTuningService/GetFineTuningJob': [t.GetFineTuningJobRequest, t.FineTuningJob];
  'FineTuningService/ListFineTuningJobs': [t.ListFineTuningJobsRequest, t.ListFineTuningJobsResponse];
  'FineTuningService/CancelFineTuningJob': [t.CancelFineTuningJobRequest, t.FineTuningJob];
  'FineTuningService/PauseFineTuningJob': [t.PauseFineTuningJobRequest, t.FineTuningJob];
  'FineTuningService/ResumeFineTuningJob': [t.ResumeFineTuningJobRequest, t.FineTuningJob];
  'FineTuningService/UpdateFineTuningJob': [t.UpdateFineTuningJobRequest, t.FineTuningJob];
  'FineTuningService/DeleteFineTuningJob': [t.DeleteFineTuningJobRequest, t.DeleteFineTuningJobResponse];
  'FineTuningService/CreateCheckpoint': [t.CreateCheckpointRequest, t.Checkpoint];
  'FineTuningService/ListFineTuningCheckpoints': [t.ListFineTuningCheckpointsRequest, t.ListFineTuningCheckpointsResponse];
  'FineTuningService/EstimateFineTuningJob': [t.EstimateFineTuningJobRequest, t.Estimate];
  'FineTuningService/PreviewHeadSelection': [t.PreviewHeadSelectionRequest, t.HeadSelectionReport];
  'FileService/GetFile': [t.GetFileRequest, t.File];
  'FileService/ListFiles': [t.ListFilesRequest, t.ListFilesResponse];
  'FileService/ListFindings': [t.ListFindingsRequest, t.ListFindingsResponse];
  'FileService/PreviewFile': [t.PreviewFileRequest, t.PreviewFileResponse];
  'FileService/DeleteFile': [t.DeleteFileRequest, t.DeleteFileResponse];
  'AdapterService/ListAdapters': [t.ListAdaptersRequest, t.ListAdaptersResponse];
  'AdapterService/GetAdapter': [t.GetAdapterRequest, t.Adapter];
  'AdapterService/LoadAdapter': [t.LoadAdapterRequest, t.LoadAdapterResponse];
  'AdapterService/UnloadAdapter': [t.UnloadAdapterRequest, t.Adapter];
  'AdapterService/PinAdapter': [t.PinAdapterRequest, t.Adapter];
  'AdapterService/SetAdapterAlias': [t.SetAdapterAliasRequest, t.AdapterAlias];
  'AdapterService/DeleteAdapterAlias': [t.DeleteAdapterAliasRequest, t.AdapterAlias];
  'AdapterService/ListAdapterAliases': [t.ListAdapterAliasesRequest, t.ListAdapterAliasesResponse];
  'AdapterService/ExportAdapter': [t.ExportAdapterRequest, t.Export];
  'AdapterService/DeleteAdapter': [t.DeleteAdapterRequest, t.DeleteAdapterResponse];
  'EvaluationService/CreateEvaluation': [t.CreateEvaluationRequest, t.Evaluation];
  'EvaluationService/GetEvaluation': [t.GetEvaluationRequest, t.Evaluation];
  'EvaluationService/ListEvaluations': [t.ListEvaluationsRequest, t.ListEvaluationsResponse];
  'EvaluationService/CancelEvaluation': [t.CancelEvaluationRequest, t.Evaluation];
  'EvaluationService/DeleteEvaluation': [t.DeleteEvaluationRequest, t.DeleteEvaluationResponse];
  'EvaluationService/ListEvaluationSamples': [t.ListEvaluationSamplesRequest, t.ListEvaluationSamplesResponse];
  'EvaluationService/CompareEvaluations': [t.CompareEvaluationsRequest, t.CompareEvaluationsResponse];
  'ModelService/ListModels': [t.ListModelsRequest, t.ListModelsResponse];
  'ModelService/ListPresets': [t.ListPresetsRequest, t.ListPresetsResponse];
  'ModelService/GetPreset': [t.GetPresetRequest, t.Preset];
  'ModelService/GetServerCapabilities': [t.GetServerCapabilitiesRequest, t.ServerCapabilities];
  'AdminService/RedriveFineTuningJob': [t.RedriveFineTuningJobRequest, t.FineTuningJob];
  'AdminService/GetHealth': [t.GetHealthRequest, t.Health];
  'AdminService/WhoAmI': [t.WhoAmIRequest, t.Caller];
  'AdminService/CreateApiKey': [t.CreateApiKeyRequest, t.ApiKey];
  'AdminService/ListApiKeys': [t.ListApiKeysRequest, t.ListApiKeysResponse];
  'AdminService/RevokeApiKey': [t.RevokeApiKeyRequest, t.ApiKey];
}

export interface Streams {
  'FineTuningService/WatchFineTuningJob': [t.WatchFineTuningJobRequest, t.WatchFineTuningJobResponse];
  'EvaluationService/WatchEvaluation': [t.WatchEvaluationRequest, t.WatchEvaluationResponse];
  'EvaluationService/DownloadEvaluation': [t.DownloadEvaluationRequest, t.DownloadEvaluationResponse];
  'AdapterService/DownloadAdapter': [t.DownloadAdapterRequest, t.DownloadAdapterResponse];
  'FileService/DownloadFile': [t.DownloadFileRequest, t.DownloadFileResponse];
  'InferenceService/GenerateStream': [t.GenerateRequest, t.GenerateStreamResponse];
}

// Client streams: multipart/form-data with the parts `header` (JSON) and `file`.
export interface Uploads {
  'FileService/UploadFile': [t.UploadFileRequest_Header, t.File];
  'AdapterService/ImportAdapter': [t.ImportAdapterRequest_Header, t.Adapter];
}
